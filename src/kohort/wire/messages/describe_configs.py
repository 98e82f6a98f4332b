"""DescribeConfigs (key 32), KIP-133: settings of topics, brokers and groups.

Version 1, the oldest since Kafka 4.0: where a value comes from and what it hides (KIP-226). Version 2: throttled after
the answer (KIP-219). Version 3: kinds of values and their documentation (KIP-569). Version 4: flexible (KIP-482).
"""

from kohort.wire.schema import BOOL, INT8, INT16, INT32, STRING, Message, array, field, message


class DescribeConfigsResource(Message):
    """One resource; `configuration_keys` None asks for all of its configs."""

    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configuration_keys: list[str] | None = field(array(STRING), nullable=0)


@message(key=32, kind="request", versions="1-4", flexible="4+")
class DescribeConfigsRequest(Message):
    """The resources to describe, with or without synonyms and documentation."""

    resources: list[DescribeConfigsResource] = field(array(DescribeConfigsResource))
    include_synonyms: bool = field(BOOL)
    include_documentation: bool = field(BOOL, since=3)


class DescribeConfigsSynonym(Message):
    """A setting from which the value is taken if the ones before it are not set."""

    name: str = field(STRING)
    value: str | None = field(STRING, nullable=0)
    source: int = field(INT8)


class DescribeConfigsResourceResult(Message):
    """One setting; `value` is None where it is sensitive or has none."""

    name: str = field(STRING)
    value: str | None = field(STRING, nullable=0)
    read_only: bool = field(BOOL)
    config_source: int = field(INT8, default=-1)
    is_sensitive: bool = field(BOOL)
    synonyms: list[DescribeConfigsSynonym] = field(array(DescribeConfigsSynonym))
    config_type: int = field(INT8, since=3)
    documentation: str | None = field(STRING, since=3, nullable=3)


class DescribeConfigsResult(Message):
    """The settings of one resource."""

    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[DescribeConfigsResourceResult] = field(array(DescribeConfigsResourceResult))


@message(key=32, kind="response", versions="1-4", flexible="4+")
class DescribeConfigsResponse(Message):
    """One result per resource of the request."""

    throttle_time_ms: int = field(INT32)
    results: list[DescribeConfigsResult] = field(array(DescribeConfigsResult))
