"""The choice of a record's partition.

Laws: as long as the number of partitions stays, a key goes to the same partition, the one that the rule's own client
chooses. Records without a key fill one partition's batch before they go to the next, and all partitions get the same
number of bytes. A failure of the application's own partitioner fails that record only.
Source: Kafka's default partitioner (murmur2, and the uniform sticky one of KIP-794) and RoundRobinPartitioner;
librdkafka's rules by their names.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

from kohort.errors import ConfigError
from kohort.records.build_kernels import murmur2

_MASK: Final = 0xFFFFFFFF
#: Keys whose hashes are remembered, because most streams repeat theirs.
_REMEMBERED_KEYS: Final = 16_384

#: The application's own rule: topic, key and number of partitions to the number of one of them.
PartitionerCall = Callable[[str, bytes | None, int], int]


def fnv1a(data: bytes) -> int:
    """Return the absolute value of the signed 32-bit FNV-1a hash, as librdkafka and Sarama do."""
    value = 0x811C9DC5
    for byte in data:
        value = (value ^ byte) * 0x01000193 & _MASK
    return value if value < 1 << 31 else (1 << 32) - value


def _java_hash(data: bytes) -> int:
    return murmur2(data) & 0x7FFFFFFF


#: name -> (hash of a key, `None`: keys are ignored; whether a missing key, and an empty one, is hashed too).
_RULES: Final[dict[str, tuple[Callable[[bytes], int] | None, bool, bool]]] = {
    "murmur2_random": (_java_hash, False, True),
    "murmur2": (_java_hash, True, True),
    "consistent_random": (zlib.crc32, False, False),
    "consistent": (zlib.crc32, True, True),
    "fnv1a_random": (fnv1a, False, True),
    "fnv1a": (fnv1a, True, True),
    "random": (None, False, False),
    "round_robin": (None, False, False),
}
DEFAULT_PARTITIONER: Final = "murmur2_random"
#: Names of these rules in other clients.
_OTHER_NAMES: Final = {
    "default": DEFAULT_PARTITIONER,
    "org.apache.kafka.clients.producer.RoundRobinPartitioner": "round_robin",
}


def parse_partitioner(value: object) -> str | PartitionerCall:
    """Read the name of a rule, or accept a function of the application's."""
    if callable(value):
        return value
    name = _OTHER_NAMES.get(str(value), value)
    if not isinstance(name, str) or name not in _RULES:
        raise ValueError(f"one of {', '.join(_RULES)}, or a function of topic, key and number of partitions, expected")
    return name


class Partitioner:
    """The partitioner of one producer; keeps the present partition of records without a key (sticky partitioning).

    Args:
        rule: a name that `parse_partitioner` knows, or a function.
        batch_bytes: bytes without a key that go to one partition before the next one.
        seed: number from which the first partition follows.
    """

    __slots__ = (
        "_batch_bytes",
        "_call",
        "_hash",
        "_hashes",
        "_seed",
        "_sticky",
        "_stuck_bytes",
        "_takes_empty",
        "_takes_none",
        "has_own_rule",
        "is_usual",
    )

    def __init__(self, rule: str | PartitionerCall = DEFAULT_PARTITIONER, *, batch_bytes: int, seed: int = 0) -> None:
        self._call = None if isinstance(rule, str) else rule
        name = rule if isinstance(rule, str) else DEFAULT_PARTITIONER
        self._hash, self._takes_none, self._takes_empty = _RULES[name]
        #: Whether the rule is Kafka's own, for which there are kernels.
        self.is_usual = rule == DEFAULT_PARTITIONER
        self.has_own_rule = self._call is not None
        #: With round_robin and random each record is a turn of its own.
        self._batch_bytes = 1 if name in ("round_robin", "random") else batch_bytes
        #: key -> hash; emptied when it grows too large.
        self._hashes: dict[bytes, int] = {}
        self._seed = seed
        #: topic -> present partition of its records without a key, and the bytes that this has got.
        self._sticky: dict[str, int] = {}
        self._stuck_bytes: dict[str, int] = {}

    def choose(self, topic: str, key: bytes | None, partition_count: int, size_bytes: int) -> int:
        """Return the partition of one record; `key` is `None` if it has none, `partition_count` above 0.

        Raises:
            ConfigError: the application's own partitioner has failed, or its result is not a partition.
        """
        if self._call is not None:
            return self._ask(self._call, topic, key, partition_count)
        if self._hash is None or (not self._takes_empty if key == b"" else key is None and not self._takes_none):
            return self._choose_turn(topic, partition_count, size_bytes)
        hashed = self._hashes.get(key or b"")
        if hashed is None:
            if len(self._hashes) >= _REMEMBERED_KEYS:
                # Emptied as a whole, which is cheaper than to keep track of the oldest.
                self._hashes.clear()
            hashed = self._hashes[key or b""] = self._hash(key or b"")
        return hashed % partition_count

    def turn(self, topic: str, partition_count: int) -> tuple[int, int]:
        """Return the present partition of records without a key, and its bytes left; -1 if the rule is not Kafka's."""
        if not self.is_usual:
            return -1, 0
        left_bytes = self._batch_bytes - self._stuck_bytes.get(topic, self._batch_bytes)
        return self._sticky.get(topic, 0) % partition_count, left_bytes

    def spend(self, topic: str, size_bytes: int) -> None:
        """Count bytes of records without a key that went to the present partition."""
        self._stuck_bytes[topic] += size_bytes

    def _choose_turn(self, topic: str, partition_count: int, size_bytes: int) -> int:
        got = self._stuck_bytes.get(topic, self._batch_bytes)
        if got >= self._batch_bytes:
            self._sticky[topic] = self._sticky.get(topic, self._seed) + 1
            got = 0
        self._stuck_bytes[topic] = got + size_bytes
        return self._sticky[topic] % partition_count

    @staticmethod
    def _ask(call: PartitionerCall, topic: str, key: bytes | None, partition_count: int) -> int:
        try:
            answer = call(topic, key, partition_count)
            number = int(answer.__index__())
        except Exception as why:
            raise ConfigError(f"the partitioner has failed for a record of {topic}: {why!r}") from why
        if isinstance(answer, bool) or not 0 <= number < partition_count:
            raise ConfigError(
                f"the partitioner has chosen {answer!r} for a record of {topic}, which has partitions 0 to "
                f"{partition_count - 1}"
            )
        return number
