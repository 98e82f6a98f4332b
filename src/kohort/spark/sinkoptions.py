"""The options of writing by `format("kohort")`: Spark's Kafka sink's and kohort's own.

Laws: as of `options.py`; what the producer needs travels on as Kafka's dotted names.
Source: Spark's Kafka integration guide, writing; P1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kohort.client.options import PRODUCER_OPTIONS
from kohort.errors import ConfigError
from kohort.spark.kafka_settings import check_security, split_options
from kohort.spark.option_table import BATCH_HEADERS, EXACTLY_ONCE, SINK_OPTIONS

#: Kafka settings that the sink owns; giving them is an error, as in Spark's Kafka sink.
REFUSED: Final = {
    "interceptor.classes": "change rows by Spark's functions",
    "ssl.context": "an object cannot travel: name files by ssl.ca.location and ssl.certificate.location",
    "key.serializer": "keys are written as they are; cast or encode the column key",
    "transactional.id": "there are no transactions yet; the sink writes at least once",
    "value.serializer": "values are written as they are; cast or encode the column value",
}
#: Options of the stream itself that Spark hands on.
_OF_QUERIES: Final = ("checkpointlocation", "queryname")
_ASYNC_PROGRESS: Final = "asyncprogresstracking"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The checked options of one `save()` or `start()`; writers take them along to the executors.

    `topic` `None`: rows name theirs. `client`: Kafka's dotted names, `bootstrap.servers` among them. `remarks`: a
    sentence for each option that changes nothing.
    """

    topic: str | None
    adds_batch_headers: bool
    client: dict[str, str] = field(default_factory=dict, repr=False)
    remarks: tuple[str, ...] = ()


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Parse the options of one `save()` or `start()`; `ConfigError` names the wrong one."""
    found = split_options(
        _without_those_of_queries(given),
        own=SINK_OPTIONS,
        settings=PRODUCER_OPTIONS,
        refused=REFUSED,
        idle={},
        instead_of_path="topic",
    )
    values, client = SINK_OPTIONS.parse(found.own), found.kafka
    check_security(PRODUCER_OPTIONS.parse(client))
    if values[EXACTLY_ONCE]:
        raise ConfigError(
            f"{EXACTLY_ONCE} cannot be true: it takes transactions, which neither the coordinator nor the producer has "
            "yet; leave it out, and let readers drop doubles (kohort.batchHeaders, docs/spark.md)"
        )
    if values["topic"] is not None and not values["topic"].strip():
        raise ConfigError("option topic cannot be empty: name a topic, or leave it out and give a column topic")
    topic = values["topic"].strip() if values["topic"] else None
    return SinkOptions(
        topic=topic, adds_batch_headers=values[BATCH_HEADERS], client=client, remarks=tuple(found.remarks)
    )


def _without_those_of_queries(given: Mapping[str, str]) -> dict[str, str]:
    kept = {}
    for name, value in given.items():
        lowered = name.lower()
        if lowered.startswith(_ASYNC_PROGRESS):
            if value.strip().lower() != "false":
                raise ConfigError(
                    f"option {name} cannot be set: Spark would say that a batch is finished before its log has it, and "
                    "offsets would be committed to groups too early"
                )
        elif lowered not in _OF_QUERIES:
            kept[name] = value
    return kept
