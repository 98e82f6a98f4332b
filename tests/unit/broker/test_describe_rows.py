"""Descriptions of groups on their way to an application: what the coordinator tells arrives, field by field."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from kohort.broker.apis import consumer_group_describe, describe_groups
from kohort.client.admin.results.groups import GroupDescription, MemberDescription
from kohort.coordinator.commands.admin import (
    DescribeClassicGroupReply,
    DescribeConsumerGroupReply,
    DescribedClassicMember,
    DescribedConsumerMember,
)
from kohort.coordinator.journal_events.reporter import MemberSigns
from kohort.errors import ErrorCode
from kohort.ids import TopicId
from kohort.wire.messages import consumer_group_describe as consumer_messages
from kohort.wire.messages import describe_groups as classic_messages
from kohort.wire.schema import Message, fields_of

ORDERS = TopicId(b"orders".ljust(16, b"."))
CONSUMER_MEMBER = DescribedConsumerMember(
    member_id="m-1",
    instance_id="till-1",
    rack_id="eu-1a",
    member_epoch=7,
    client_id="billing-app",
    client_host="/10.0.0.1",
    subscribed_topic_names=("orders",),
    subscribed_topic_regex="ord.*",
    assignment={ORDERS: (0, 2)},
    target_assignment={ORDERS: (0, 1)},
    member_type=1,
    offline_since_ms=1_700_000_000_000,
    metadata=b"zone a",
)
CONSUMER_GROUP = DescribeConsumerGroupReply(
    group_id="billing",
    state="Reconciling",
    group_epoch=9,
    assignment_epoch=8,
    assignor_name="uniform",
    members=(CONSUMER_MEMBER,),
    topic_names={ORDERS: "orders"},
    is_static=True,
    assignor_failure="mine: boom",
)
CLASSIC_MEMBER = DescribedClassicMember(
    member_id="m-1",
    instance_id="till-1",
    client_id="billing-app",
    client_host="/10.0.0.1",
    metadata=b"subscription",
    assignment=b"\0\0\0\0\0\1\0\6orders\0\0\0\1\0\0\0\2\xff\xff\xff\xff",
    offline_since_ms=1_700_000_000_000,
)
CLASSIC_GROUP = DescribeClassicGroupReply(
    error=ErrorCode.NONE,
    group_id="billing",
    state="Stable",
    protocol_type="consumer",
    protocol_name="range",
    members=(CLASSIC_MEMBER,),
    is_static=True,
)
CONSUMER_ROW = consumer_group_describe.group_row("billing", CONSUMER_GROUP)
CLASSIC_ROW = describe_groups.group_row("billing", CLASSIC_GROUP, 6)
#: Fields of replies that have another name in the row.
RENAMED = {
    consumer_messages.DescribedGroup: {"state": "group_state", "topic_names": "members"},
    classic_messages.DescribedGroup: {"state": "group_state", "protocol_name": "protocol_data", "error": "error_code"},
    classic_messages.DescribedGroupMember: {
        "instance_id": "group_instance_id",
        "metadata": "member_metadata",
        "assignment": "member_assignment",
    },
}
#: Fields of rows that no reply has: none of a group without an error, and those that depend on the client.
OF_THE_REQUEST = {"error_code", "error_message", "authorized_operations", "metadata", "metadata_size"} | {
    *MemberSigns._fields,
    "is_connected",
}


@pytest.mark.parametrize(
    ("reply", "row"),
    [
        (CONSUMER_GROUP, CONSUMER_ROW),
        (CONSUMER_MEMBER, CONSUMER_ROW.members[0]),
        (CLASSIC_GROUP, CLASSIC_ROW),
        (CLASSIC_MEMBER, CLASSIC_ROW.members[0]),
    ],
)
def test_every_field_of_a_reply_is_in_the_row_and_no_other_is_left_unset(reply: Any, row: Message) -> None:
    renamed = RENAMED.get(type(row), {})
    told = {renamed.get(each.name, each.name) for each in fields(reply)}
    declared = {each.name: each for each in fields_of(type(row))}
    assert told | OF_THE_REQUEST == declared.keys() | OF_THE_REQUEST
    for name in told - OF_THE_REQUEST:
        assert getattr(row, name) != declared[name].make_default(), name


@pytest.mark.parametrize(
    "found", [GroupDescription.of_consumer(CONSUMER_ROW), GroupDescription.of_classic(CLASSIC_ROW)]
)
def test_an_application_is_told_what_the_row_has(found: GroupDescription) -> None:
    (member,) = found.members
    is_new = found.group_type == "consumer"
    assert member == MemberDescription(
        member_id="m-1",
        instance_id="till-1",
        client_id="billing-app",
        client_host="/10.0.0.1",
        member_epoch=7 if is_new else None,
        assignment=(("orders", 0), ("orders", 2)) if is_new else (("orders", 2),),  # type: ignore[arg-type]
        target=(("orders", 0), ("orders", 1)) if is_new else (),  # type: ignore[arg-type]
        offline_since_ms=1_700_000_000_000,
    )
    assert found == GroupDescription(
        group_id="billing",
        group_type="consumer" if is_new else "classic",
        state="Reconciling" if is_new else "Stable",
        assignor="uniform" if is_new else "range",
        group_epoch=9 if is_new else None,
        assignment_epoch=8 if is_new else None,
        members=(member,),
        is_static=True,
        assignor_failure="mine: boom" if is_new else None,
    )
