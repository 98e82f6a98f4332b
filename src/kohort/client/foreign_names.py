"""Names of other Python clients' calls: their use raises an `AttributeError` with the call to use instead.

Laws: none of them is an attribute: `hasattr` is false, and `dir` of an object and type checkers do not list it. A name
that a class has of its own is left alone. A lookup of any other name takes as long as without this module.
Source: confluent-kafka 2.16, kafka-python 3.0, aiokafka 0.14; docs/reference/migrate.md has all their calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NoReturn, TypeVar

T = TypeVar("T", bound=type)

_CLUSTER: Final = {"cluster_id": "Admin.describe_cluster() tells it"}
CONSUMERS: Final = {
    **_CLUSTER,
    "bootstrap_connected": "the first call connects, and says why it cannot",
    "memberid": "member_id, an attribute",
    "consumer_group_metadata": "group_metadata()",
    "incremental_assign": "assign takes all that is to be read, and what is read already goes on where it is",
    "incremental_unassign": "assign takes all that is to be read, and what is read already goes on where it is",
    "unassign": "unsubscribe()",
    "partitions_for_topic": "partitions_for(topic)",
    "seek_to_committed": "seek(partition, committed(partition))",
    "last_stable_offset": "highwater(partition), with isolation_level='read_committed'",
}
PRODUCERS: Final = {
    **_CLUSTER,
    "bootstrap_connected": "connect() waits for a broker, and says why there is none",
    "list_topics": "partitions_for(topic), and Admin.list_topics()",
    **dict.fromkeys(("produce_batch", "create_batch", "send_batch"), "send_many(topic, values)"),
    "purge": "close(0) gives up what was not sent",
}
ADMINS: Final = {
    **_CLUSTER,
    "list_consumer_groups": "list_groups()",
    "describe_consumer_groups": "describe_groups(groups)",
    "list_consumer_group_offsets": "list_group_offsets(groups), or group_offsets(group) with lag",
    "alter_consumer_group_offsets": "alter_group_offsets(group, offsets)",
    "delete_consumer_groups": "delete_groups(names)",
    "remove_group_members": "remove_members(group, members)",
    "reset_group_offsets": "reset_offsets(group, to)",
    "describe_metadata_quorum": "describe_quorum()",
}


class _Elsewhere:
    """A name that raises an `AttributeError` with the call to use instead."""

    def __init__(self, name: str, instead: str) -> None:
        self._name = name
        self._instead = instead

    def __get__(self, _: object, kind: type) -> NoReturn:
        raise AttributeError(f"{kind.__name__!r} object has no attribute {self._name!r}; here: {self._instead}")


def answering(names: Mapping[str, str]) -> Callable[[T], T]:
    """Return a class decorator that makes `names` missing in the class raise a helpful `AttributeError`."""

    def add(kind: T) -> T:
        missing = names.keys() - set(dir(kind))

        def known(self: object) -> Iterable[str]:
            return [name for name in object.__dir__(self) if name not in missing]

        for name in missing:
            setattr(kind, name, _Elsewhere(name, names[name]))
        setattr(kind, "__dir__", known)  # noqa: B010  # a class may do so, and mypy has no word for it
        return kind

    return add
