"""The machine's settings from a producer's options; options that contradict each other are refused.

Source: Apache Kafka's producer configuration.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Any, Final

from kohort.client.options import machine_options
from kohort.errors import ConfigError

if TYPE_CHECKING:
    from kohort.client.producer.core.sender import SenderSettings

_ACKS: Final = {"all": -1, "-1": -1, "0": 0, "1": 1}


def is_idempotent(values: Mapping[str, Any], given: Container[str]) -> bool:
    """Return whether batches are numbered; `given` are the options that are set."""
    wanted: bool = values["enable.idempotence"]
    if _ACKS[values["acks"]] != -1 and wanted:
        if "enable.idempotence" in given:
            raise ConfigError("enable.idempotence needs acks=all; leave one of the two out")
        return False
    if wanted and values["max.in.flight.requests.per.connection"] > 5:
        raise ConfigError("max.in.flight.requests.per.connection cannot be above 5 with enable.idempotence")
    return wanted


def sender_settings(values: Mapping[str, Any]) -> SenderSettings:
    """Build settings from options that `PRODUCER_OPTIONS` has parsed."""
    # Part of the machine, so imported only when a producer is created.
    from kohort.client.producer.core.sender import SenderSettings

    levels = {
        "gzip": values["compression.gzip.level"],
        "lz4": values["compression.lz4.level"],
        "zstd": values["compression.zstd.level"],
    }
    return SenderSettings(
        options=machine_options(values),
        acks=_ACKS[values["acks"]],
        compression_level=levels.get(values["compression.type"]),
    )
