"""IncrementalAlterConfigs (key 44), KIP-339: change single settings and leave the others alone.

Version 1: flexible (KIP-482).
"""

from kohort.wire.messages.alter_configs import AlterConfigsResourceResponse
from kohort.wire.schema import BOOL, INT8, INT32, STRING, Message, array, field, message


class AlterableConfig(Message):
    """One change; `config_operation`: 0 set, 1 back to the default, 2 append to, 3 take out of a list."""

    name: str = field(STRING)
    config_operation: int = field(INT8)
    value: str | None = field(STRING, nullable=0)


class AlterConfigsResource(Message):
    """Changes to one resource."""

    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[AlterableConfig] = field(array(AlterableConfig))


@message(key=44, kind="request", versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest(Message):
    """Changes to make, or only to check."""

    resources: list[AlterConfigsResource] = field(array(AlterConfigsResource))
    validate_only: bool = field(BOOL)


@message(key=44, kind="response", versions="0-1", flexible="1+")
class IncrementalAlterConfigsResponse(Message):
    """One answer per resource of the request."""

    throttle_time_ms: int = field(INT32)
    responses: list[AlterConfigsResourceResponse] = field(array(AlterConfigsResourceResponse))
