"""Rows with the principal of the request: who joined, left, was removed by whom, set offsets and configs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from kohort.broker.context import BrokerContext
from kohort.cli.verbs.grouphistory import sentence
from kohort.journal.explain.explaining import explain
from kohort.journal.words import MemberNames
from kohort.wire.private import PrivateApiKey
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import make
from support.dialogues.wired_connection import WiredConnection, wired_broker

ANN, ROOT = "User:ann", "User:root"
MEMBER = "member-1234"


def play(scene: Callable[[BrokerContext], Awaitable[None]]) -> None:
    async def run() -> None:
        with wired_broker({"group.consumer.assignment.window.ms": 0}) as context:
            rows = [{"name": "t", "num_partitions": 2, "replication_factor": 1}]
            made = make(ApiKey.CREATE_TOPICS, topics=rows, timeout_ms=1_000)
            await WiredConnection(context).ask(ApiKey.CREATE_TOPICS, 7, made)
            await scene(context)

    asyncio.run(asyncio.wait_for(run(), 30))


def client_of(context: BrokerContext, principal: str | None) -> WiredConnection:
    client = WiredConnection(context)
    if principal is not None:
        client.connection.principal = principal
    return client


async def join(client: WiredConnection, member_id: str) -> Any:
    request = make(
        ApiKey.CONSUMER_GROUP_HEARTBEAT, group_id="g", member_id=member_id, member_epoch=0,
        rebalance_timeout_ms=60_000, subscribed_topic_names=["t"], topic_partitions=[], instance_id="i-ann",
    )  # fmt: skip
    return await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request)


async def remove(client: WiredConnection, member_id: str) -> None:
    """As the admin clients of Java and librdkafka do."""
    members = [{"member_id": member_id, "reason": "member was removed by an admin"}]
    answer = await client.ask(ApiKey.LEAVE_GROUP, 5, make(ApiKey.LEAVE_GROUP, group_id="g", members=members))
    assert answer.error_code == 0 == answer.members[0].error_code


async def commit(client: WiredConnection, group_id: str = "g") -> None:
    partitions = [{"partition_index": 1, "committed_offset": 7, "committed_metadata": ""}]
    rows = [{"name": "t", "partitions": partitions}]
    await client.ask(ApiKey.OFFSET_COMMIT, 9, make(ApiKey.OFFSET_COMMIT, group_id=group_id, topics=rows))


async def history(context: BrokerContext, group_id: str = "g") -> list[Any]:
    request = make(PrivateApiKey.GROUP_HISTORY, group_id=group_id, after_sequence=0)
    answer = await WiredConnection(context).ask(PrivateApiKey.GROUP_HISTORY, 1, request)
    for row in answer.rows:
        row.details = {detail.name: detail.value for detail in row.details}
    rows: list[Any] = answer.rows
    return rows


def signed(rows: list[Any]) -> list[tuple[str, str]]:
    return [(row.event, row.details["principal"]) for row in rows if "principal" in row.details]


def test_rows_name_who_joined_and_who_removed_a_member() -> None:
    async def scene(context: BrokerContext) -> None:
        await join(client_of(context, ANN), MEMBER)
        await remove(client_of(context, ROOT), MEMBER)
        rows = await history(context)
        assert signed(rows) == [
            ("ConsumerGroupHeartbeat", ANN),
            ("member_joined", ANN),
            ("epoch_bumped", ANN),
            ("LeaveGroup", ROOT),
            ("member_removed", ROOT),
            ("epoch_bumped", ROOT),
        ]
        names = MemberNames()
        names.learn(rows)
        told = [sentence(row, names) for row in rows]
        assert "i-ann asks to join, as User:ann" in told
        assert "User:root asks to remove i-ann: member was removed by an admin" in told
        assert "i-ann is no member any more: removed by User:root" in told
        found = explain("g", rows, now_ms=rows[-1].time_ms)
        whys = [trigger.sentence for rebalance in found.rebalances for trigger in rebalance.triggers]
        assert "i-ann joined, by User:ann" in whys
        assert "i-ann was removed by User:root (member was removed by an admin)" in whys

    play(scene)


def test_offsets_that_are_set_by_hand_are_told_with_who_did_it() -> None:
    """A commit without a member in a group that has had some; a consumer without a group is only counted."""

    async def scene(context: BrokerContext) -> None:
        root = client_of(context, ROOT)
        await join(client_of(context, ANN), MEMBER)
        await remove(root, MEMBER)
        await commit(root)
        await commit(root, "alone")
        rows = await history(context)
        (reset,) = [row for row in rows if row.event == "offsets_reset"]
        assert reset.details == {"partitions": "t-1", "principal": ROOT}
        names = MemberNames()
        assert sentence(reset, names) == "offsets of t:1 were set by hand, by User:root"
        assert await history(context, "alone") == []
        delete = make(
            ApiKey.OFFSET_DELETE, group_id="g", topics=[{"name": "t", "partitions": [{"partition_index": 1}]}]
        )
        await root.ask(ApiKey.OFFSET_DELETE, 0, delete)
        assert signed(await history(context))[-1] == ("offsets_forgotten", ROOT)

    play(scene)


def test_configs_and_refusals_name_their_principal() -> None:
    async def scene(context: BrokerContext) -> None:
        root = client_of(context, ROOT)
        configs = [{"name": "consumer.session.timeout.ms", "config_operation": 0, "value": "50000"}]
        resources = [{"resource_type": 32, "resource_name": "g", "configs": configs}]
        await root.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, make(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=resources))
        moves = [{"topic": "t", "partition": 0, "to_member_id": "nobody"}]
        await root.ask(PrivateApiKey.SUBMIT_MOVES, 0, make(PrivateApiKey.SUBMIT_MOVES, group_id="g", moves=moves))
        rows = await history(context)
        assert ("configs_changed", ROOT) in signed(rows)
        (changed,) = [row for row in rows if row.event == "configs_changed"]
        said = sentence(changed, MemberNames())
        assert said == "configs changed: consumer.session.timeout.ms=50000, by User:root"

    play(scene)


def test_without_a_login_rows_are_as_before() -> None:
    async def scene(context: BrokerContext) -> None:
        nobody = client_of(context, None)
        await join(nobody, MEMBER)
        await remove(nobody, MEMBER)
        await commit(nobody)
        rows = await history(context)
        assert signed(rows) == []
        assert not [row for row in rows if row.event in ("offsets_reset", "CommitOffsets")]

    play(scene)
