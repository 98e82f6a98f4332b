"""What is kohort's own on the wire: out of the numbers that Kafka may give out, declared once, and documented."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kohort.broker.options.settings import BROKER_OPTIONS
from kohort.client.options import CONSUMER_OPTIONS
from kohort.coordinator.configs import GROUP_CONFIGS
from kohort.wire import private
from kohort.wire.codec import decode, encode
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.wire.registry import ApiKey, is_flexible, request_class, response_class, versions_of
from kohort.wire.schema import Array, Message, fields_of, schema_of
from support.builders import own_configs
from support.builders.wire_messages import all_message_classes, message_classes

DOCUMENT = (Path(__file__).parents[3] / "docs" / "reference" / "private-protocol.md").read_text()


def structs_in(cls: type[Message]) -> set[type[Message]]:
    """A message and the structs inside it."""
    found = {cls}
    for each in fields_of(cls):
        element = each.kind.element if isinstance(each.kind, Array) else each.kind
        if isinstance(element, type):
            found |= structs_in(element)
    return found


MEMBERS = ("Member", "DescribedGroupMember")
SIGNS = (
    *("last_heard_ms", "last_fetch_ms", "last_commit_ms", "session_left_ms", "overdue_ms", "is_connected"),
    "last_poll_ms",
)
#: (class name of the message or struct, tag) → attribute.
TAGGED_FIELDS = {
    ("ApiVersionsResponse", 10_000): "broker_version",
    ("Member", 10_001): "metadata_size",
    ("Member", 10_002): "metadata",
    **{(member, 10_003 + at): name for member in MEMBERS for at, name in enumerate(SIGNS)},
    ("ConsumerGroupHeartbeatRequest", 10_000): "proposed_heartbeat_interval_ms",
    ("ConsumerGroupHeartbeatRequest", 10_001): "registration_timeout_ms",
    ("ConsumerGroupHeartbeatRequest", 10_002): "expansion_timeout_ms",
    ("ConsumerGroupHeartbeatRequest", 10_003): "client_assignors",
    ("ConsumerGroupHeartbeatRequest", 10_004): "metadata",
    ("ConsumerGroupHeartbeatRequest", 10_005): "watched_version",
    ("ConsumerGroupHeartbeatRequest", 10_006): "wants_numbers",
    ("ConsumerGroupHeartbeatRequest", 10_007): "last_poll_ms",
    ("HeartbeatRequest", 10_000): "last_poll_ms",
    ("ConsumerGroupHeartbeatResponse", 10_000): "rebalance_reason",
    ("ConsumerGroupHeartbeatResponse", 10_001): "should_compute_assignment",
    ("ConsumerGroupHeartbeatResponse", 10_002): "client_assignment",
    ("ConsumerGroupHeartbeatResponse", 10_003): "metadata_news",
    ("ConsumerGroupHeartbeatResponse", 10_004): "number",
    ("ConsumerGroupHeartbeatResponse", 10_005): "session_timeout_ms",
    ("ConsumerGroupHeartbeatResponse", 10_006): "grant",
    ("ConsumerGroupHeartbeatResponse", 10_007): "counts_fetches",
    ("DescribedGroup", 10_000): "is_static",
    ("DescribedGroup", 10_001): "assignor_failure",
    ("DescribedGroupMember", 10_000): "offline_since_ms",
    ("FetchRequest", 10_000): "member",
    ("FetchRequest", 10_001): "grant",
    ("FetchResponse", 10_000): "membership_update",
    ("HeartbeatResponse", 10_000): "rebalance_reason",
    ("JoinGroupRequest", 10_000): "registration_timeout_ms",
    ("JoinGroupRequest", 10_001): "expansion_timeout_ms",
    ("Member", 10_000): "offline_since_ms",
    ("MembershipUpdate", 10_000): "grant",
    ("OffsetCommitRequest", 10_000): "member",
    ("OffsetCommitRequest", 10_001): "grant",
    ("OffsetCommitRequest", 10_002): "released",
    ("OffsetCommitResponse", 10_000): "membership_update",
}
KAFKAS_CLASSES = frozenset(message_classes())
OWN_CLASSES = [cls for cls in all_message_classes() if cls not in KAFKAS_CLASSES]


def test_private_numbers_are_above_every_number_of_kafka() -> None:
    assert all(key >= private.FIRST_API_KEY > max(ApiKey) for key in [*private.PrivateApiKey, private.FIRST_API_KEY])
    assert all(tag >= private.FIRST_TAG for _, tag in TAGGED_FIELDS)
    assert all(number >= private.FIRST_RECORD_TYPE for number in private.RECORD_TYPES)
    # Keys and types are int16 on the wire.
    assert all(number < 1 << 15 for number in [*private.PrivateApiKey, *private.RECORD_TYPES])


def test_every_tagged_field_of_ours_is_registered_and_declared() -> None:
    declared = {
        (part.__name__, each.tag): each.name
        for cls in all_message_classes()
        for part in structs_in(cls)
        for each in fields_of(part)
        if each.tag is not None and each.tag >= private.FIRST_TAG
    }
    assert declared == TAGGED_FIELDS


def test_every_record_type_of_ours_is_registered_and_declared() -> None:
    records = {cls.__name__: schema_of(cls).key for cls in OWN_CLASSES if "coordinator" in schema_of(cls).kind}
    assert records == {
        f"{name}{part}": number for number, name in private.RECORD_TYPES.items() for part in ("Key", "Value")
    }


def test_every_api_of_ours_is_registered_and_declared() -> None:
    assert set(private.API_VERSIONS) == set(private.PrivateApiKey)
    declared = {cls for cls in OWN_CLASSES if schema_of(cls).kind in ("request", "response")}
    registered = {of(key) for key in private.PrivateApiKey for of in (request_class, response_class)}
    assert declared == registered
    for key in private.PrivateApiKey:
        schema = schema_of(request_class(key))
        assert (schema.first_version, schema.last_version) == versions_of(key)
        assert schema.is_flexible(0) and is_flexible(key, 0)


def test_every_config_of_ours_is_registered() -> None:
    """Of a group's, Kafka has those of its protocols; what an Apache Kafka knows is asked in the tests of interop."""
    assert {name for name in GROUP_CONFIGS if not name.startswith("consumer.")} == set(own_configs.GROUP_CONFIGS)
    options = {option.name for option in BROKER_OPTIONS}
    assert {*own_configs.GROUP_CONFIGS, *own_configs.BROKER_CONFIGS} - {*own_configs.OF_GROUPS_ALONE} <= options
    assert set(own_configs.CONSUMER_CONFIGS) <= {option.name for option in CONSUMER_OPTIONS}


@pytest.mark.parametrize(
    "name",
    [
        *(f"{int(key):,}".replace(",", " ") for key in private.PrivateApiKey),
        *(key.name for key in private.PrivateApiKey),
        *TAGGED_FIELDS.values(),
        *(message for message, _ in TAGGED_FIELDS),
        *private.RECORD_TYPES.values(),
        *own_configs.GROUP_CONFIGS,
        *own_configs.BROKER_CONFIGS,
        *own_configs.TOPIC_CONFIGS,
        *own_configs.CONSUMER_CONFIGS,
        *own_configs.PRODUCER_CONFIGS,
    ],
)
def test_every_entry_is_documented(name: str) -> None:
    # The numbers stand alone, the names in code marks.
    assert re.search(rf"[`| ]{re.escape(name)}[`,| ]", DOCUMENT)


@pytest.mark.parametrize("version", [0, 1])
def test_a_client_that_proposes_nothing_writes_kafkas_bytes(version: int) -> None:
    plain = encode(ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1), version)
    assert plain.endswith(b"\x00")
    proposing = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=1, proposed_heartbeat_interval_ms=250
    )
    data = encode(proposing, version)
    # One tagged field: number 10,000, four bytes.
    assert data == plain[:-1] + b"\x01\x90\x4e\x04" + (250).to_bytes(4, "big")
    assert decode(ConsumerGroupHeartbeatRequest, version, data) == (proposing, len(data))
