"""ListConfigResources (key 74), KIP-1142: the resources with configs of their own.

Version 0 lists resources of client metrics only (KIP-714). Version 1 names kinds of resources, and says of which kind
each of the answer is. Flexible from the first version.
"""

from kohort.wire.schema import INT8, INT16, INT32, STRING, Message, array, field, message


@message(key=74, kind="request", versions="0-1", flexible="0+")
class ListConfigResourcesRequest(Message):
    """The kinds to list; an empty list asks for all that the broker has."""

    resource_types: list[int] = field(array(INT8), since=1)


class ConfigResource(Message):
    """One resource; 16 is a subscription to client metrics."""

    resource_name: str = field(STRING)
    resource_type: int = field(INT8, since=1, default=16)


@message(key=74, kind="response", versions="0-1", flexible="0+")
class ListConfigResourcesResponse(Message):
    """The resources of the kinds that were asked for."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    config_resources: list[ConfigResource] = field(array(ConfigResource))
