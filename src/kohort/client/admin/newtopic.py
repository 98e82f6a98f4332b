"""A topic to create, and other clients' types for the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kohort.client.arguments import INT32_MAX, to_topic, whole_number
from kohort.errors import ConfigError

_CALL: Final = "NewTopic('orders', 3)"
_INT16_MAX: Final = 2**15 - 1
#: Leaves a number to the cluster.
_DEFAULT: Final = -1


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create.

    Args:
        name: of the topic.
        partitions: their number; `None`: as many as `assignments` has, or one; -1: the cluster's `num.partitions`.
        replication_factor: copies of each partition; `None` or -1: the cluster's `default.replication.factor`.
        assignments: the brokers of each partition, the preferred leader first: a list of lists, or by its number.
        configs: its own configs; one with the value `None` is left to the cluster.

    >>> NewTopic("orders", assignments=[[1, 2], [2, 3]])
    NewTopic(name='orders', partitions=2, replication_factor=2, assignments=((1, 2), (2, 3)), configs={})

    Raises:
        ConfigError: numbers that cannot be, or that contradict each other.
    """

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignments: Sequence[Sequence[int]] | Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, object] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        def keep(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        to_topic(self.name, _CALL)
        keep("configs", _configs_of(self.configs))
        partitions, factor = self.partitions, self.replication_factor
        if self.assignments is None:
            keep("partitions", _number(1 if partitions is None else partitions, "partitions", INT32_MAX))
            keep("replication_factor", _number(_DEFAULT if factor is None else factor, "replication_factor"))
            return
        brokers = to_assignments(self.assignments)
        if partitions not in (None, _DEFAULT, len(brokers)):
            raise ConfigError(f"partitions is {partitions}, and assignments has {len(brokers)}: leave partitions out")
        if factor not in (None, _DEFAULT, len(brokers[0])):
            raise ConfigError(
                f"replication_factor is {factor}, and assignments has {len(brokers[0])} brokers for partition 0: "
                "leave replication_factor out"
            )
        keep("partitions", len(brokers))
        keep("replication_factor", len(brokers[0]))
        keep("assignments", brokers)


def to_new_topics(topics: object) -> list[NewTopic]:
    """Check several topics to create: each a `NewTopic`, a name, or another client's new topic."""
    if isinstance(topics, (str, bytes, Mapping, NewTopic)) or not isinstance(topics, Iterable):
        raise TypeError(f"topics cannot be {topics!r}: a list is expected, like [{_CALL}]")
    found: dict[str, NewTopic] = {}
    for each in topics:
        topic = _to_new_topic(each)
        if topic.name in found:
            raise ConfigError(f"topic {topic.name} is named twice: name it once")
        found[topic.name] = topic
    return list(found.values())


def _to_new_topic(value: object) -> NewTopic:
    if isinstance(value, NewTopic):
        return value
    if isinstance(value, str):
        return NewTopic(value)
    if not hasattr(value, "num_partitions"):
        raise TypeError(f"{value!r} is no new topic: a name or {_CALL} is expected")

    def given(*names: str) -> object:
        return next((getattr(value, name) for name in names if hasattr(value, name)), None) or None

    return NewTopic(
        given("name", "topic"),  # type: ignore[arg-type]  # which is what __post_init__ looks at
        value.num_partitions,
        getattr(value, "replication_factor", None),
        given("replica_assignments", "replica_assignment"),  # type: ignore[arg-type]
        given("topic_configs", "config"),  # type: ignore[arg-type]
    )


def to_assignments(given: object) -> tuple[tuple[int, ...], ...]:
    """Check the brokers of partitions, in their order; all have as many."""
    if isinstance(given, Mapping):
        if sorted(given) != list(range(len(given))):
            raise ConfigError(f"assignments has the partitions {sorted(given)}: they are numbered from 0 without gaps")
        given = [given[number] for number in range(len(given))]
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise TypeError(f"assignments cannot be {given!r}: the brokers of each partition, like [[1, 2], [2, 3]]")
    rows = []
    for row in given:
        if isinstance(row, (str, bytes)) or not isinstance(row, Iterable):
            raise TypeError(f"assignments cannot have {row!r}: the brokers of a partition, like [1, 2]")
        rows.append(tuple(whole_number(each, "assignments", "the number of a broker", INT32_MAX) for each in row))
    if not rows:
        raise ConfigError("assignments is empty: the brokers of each partition are expected, like [[1, 2], [2, 3]]")
    for number, brokers in enumerate(rows):
        if not brokers or len(set(brokers)) != len(brokers) or len(brokers) != len(rows[0]):
            raise ConfigError(
                f"assignments has {list(brokers)} for partition {number}: as many for each, none twice, are expected"
            )
    return tuple(rows)


def _number(value: object, name: str, maximum: int = _INT16_MAX) -> int:
    if value == _DEFAULT:
        return _DEFAULT
    return whole_number(value, name, "1 or more, or -1 for the cluster's default,", maximum, minimum=1)


def _configs_of(configs: object) -> dict[str, object]:
    if configs is None:
        return {}
    if not isinstance(configs, Mapping) or not all(isinstance(name, str) for name in configs):
        raise TypeError(f"configs cannot be {configs!r}: a mapping is expected, like {{'retention.ms': 1000}}")
    return dict(configs)
