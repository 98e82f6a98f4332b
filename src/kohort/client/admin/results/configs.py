"""What the admin client returns of configs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class ConfigResource(NamedTuple):
    """What has configs: `kind` is "topic", "broker", "group", "client-metrics" or "broker-logger".

    The name of a broker is its number; empty stands for what all brokers have been set to together.
    """

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" if self.name else f"all {self.kind}s"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSynonym:
    """Where a config gets its value if what is before it is not set; `source` as of `ConfigEntry`."""

    name: str
    value: str | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One config as it is in force.

    `value`: `None` where there is none, and always where it `is_sensitive`. `source`: Kafka's name of where the value
    comes from, e.g. "DYNAMIC_TOPIC_CONFIG" (set on the topic), "STATIC_BROKER_CONFIG" (of the broker's start),
    "DEFAULT_CONFIG". `default`: what it is without being set at all, `None` where nobody says. `type`: Kafka's name,
    e.g. "LONG". `idle`: the broker's words for a value that it takes and does not act on. `doc`: `None` where the
    broker says nothing.
    """

    name: str
    value: str | None
    source: str
    default: str | None
    is_read_only: bool
    is_sensitive: bool
    type: str
    synonyms: tuple[ConfigSynonym, ...]
    idle: str | None
    doc: str | None

    @property
    def is_default(self) -> bool:
        """Whether nobody has set it; Apache Kafka sets `min.insync.replicas` of a new cluster to its default."""
        is_preset = self.source == "DYNAMIC_DEFAULT_BROKER_CONFIG" and self.value == self.default
        return is_preset or self.source == "DEFAULT_CONFIG"
