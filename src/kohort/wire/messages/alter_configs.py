"""AlterConfigs (key 33), KIP-133: all configs of resources; unnamed ones go back to their defaults.

Version 2: flexible (KIP-482).
"""

from kohort.wire.schema import BOOL, INT8, INT16, INT32, STRING, Message, array, field, message


class AlterableConfig(Message):
    """One setting."""

    name: str = field(STRING)
    value: str | None = field(STRING, nullable=0)


class AlterConfigsResource(Message):
    """All configs that a resource is to have."""

    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[AlterableConfig] = field(array(AlterableConfig))


@message(key=33, kind="request", versions="0-2", flexible="2+")
class AlterConfigsRequest(Message):
    """Settings to make, or only to check."""

    resources: list[AlterConfigsResource] = field(array(AlterConfigsResource))
    validate_only: bool = field(BOOL)


class AlterConfigsResourceResponse(Message):
    """The result for one resource: all of its changes are made, or none."""

    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)


@message(key=33, kind="response", versions="0-2", flexible="2+")
class AlterConfigsResponse(Message):
    """One answer per resource of the request."""

    throttle_time_ms: int = field(INT32)
    responses: list[AlterConfigsResourceResponse] = field(array(AlterConfigsResourceResponse))
