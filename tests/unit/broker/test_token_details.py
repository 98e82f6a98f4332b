"""What is told of one token, member or partition: lines of the log, the label in the journal, and the broker's state.

Source: requirement H6 (debug level and monitoring by consumer and partition); KIP-412.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import Any

import pytest

from kohort.broker import log_levels
from kohort.broker.log_levels import LONGEST_MADE, MOST_LINES, check_levels, levels, set_levels
from kohort.capabilities import Caveat, attenuate, label, log_level, operations
from kohort.errors import Refused
from kohort.journal.words import show_principal
from kohort.simulation.clients.network import VirtualLoop, run_virtually
from kohort.wire.messages.describe_broker import DescribeBrokerRequest
from kohort.wire.messages.group_history import GroupHistoryRequest
from kohort.wire.private import PrivateApiKey
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import batch_of, fetch_request, make, produce_request
from support.dialogues.login_dialogue import LoginDialogue, config_of
from support.dialogues.wired_connection import wired_broker


@pytest.fixture(autouse=True)
def _levels_are_taken_back() -> Iterator[None]:
    yield
    set_levels(dict.fromkeys([*log_levels.asked_loggers]))
    log_levels._made.clear()
    log_levels._lines.__init__()  # type: ignore[misc]


class Scene:
    """A broker with a topic of one record, and clients with tokens."""

    def __init__(self, context: Any) -> None:
        self.context = context
        context.cluster.create_topic("t", 1, {})

    def token(self, *caveats: Caveat, number: int = 1) -> str:
        return str(self.context.capabilities.mint(*caveats, token_id=bytes([number]) * 16))

    async def connect(self, token: str) -> LoginDialogue:
        client = LoginDialogue(self.context)
        assert (await client.plain("token", token)).error_code == 0
        return client

    async def read(self, client: LoginDialogue) -> None:
        await client.ask(ApiKey.FETCH, 12, fetch_request("t"))

    async def beat(self, client: LoginDialogue, group: str = "g", member: str = "m", epoch: int = 0) -> Any:
        request = make(
            ApiKey.CONSUMER_GROUP_HEARTBEAT, group_id=group, member_id=member, member_epoch=epoch,
            rebalance_timeout_ms=60_000, subscribed_topic_names=["t"], topic_partitions=[],
        )  # fmt: skip
        return await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request)


def play(scene: Callable[[Scene], Awaitable[None]]) -> None:
    async def begin(loop: VirtualLoop) -> None:
        with wired_broker(config_of()) as context:
            context.logins.start()
            found = Scene(context)
            await (await found.connect(found.token())).ask(ApiKey.PRODUCE, 9, produce_request("t", batch_of(b"a")))
            await scene(found)
            context.logins.stop()

    run_virtually(begin, Random("details"))


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Logger and event of each line about requests and reads."""
    found = [(each.name, each.getMessage()) for each in caplog.records]
    return [(name, text) for name, text in found if text.startswith(("event=request", "event=fetched"))]


def test_reads_of_one_partition_and_requests_of_one_member_are_told_when_their_loggers_are_set(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(scene: Scene) -> None:
        client = await scene.connect(scene.token(label("app")))
        await scene.read(client)
        await scene.beat(client)
        assert lines(caplog) == []
        wanted = {"kohort.fetch.t.0": "DEBUG", "kohort.group.g.member.m": "DEBUG", "kohort.fetch.t.1": "DEBUG"}
        set_levels(check_levels(wanted.items()))
        assert wanted.items() <= levels().items()
        await scene.read(client)
        await scene.beat(client)
        await scene.beat(client, member="other")
        assert [name for name, _ in lines(caplog)] == ["kohort.fetch.t.0", "kohort.group.g.member.m"]
        read, asked = (text for _, text in lines(caplog))
        assert "topic='t' partition=0 bytes=69 error=NONE principal='Token:" in read
        assert "api=CONSUMER_GROUP_HEARTBEAT group='g' member='m'" in asked and "label='app'" in asked
        # The nearest name decides; without one all of a group are told.
        set_levels(check_levels([("kohort.group.g", "DEBUG"), ("kohort.group.g.member.m", "INFO")]))
        caplog.clear()
        await scene.beat(client)
        await scene.beat(client, member="other")
        assert [name for name, _ in lines(caplog)] == ["kohort.group.g"]
        set_levels(check_levels([("kohort.group.g", None), ("kohort.fetch.t.0", None)]))
        caplog.clear()
        await scene.read(client)
        await scene.beat(client, member="other")
        assert lines(caplog) == []

    with caplog.at_level(logging.DEBUG, "kohort"):
        play(scene)


def test_token_asks_for_lines_about_its_own_requests_alone(caplog: pytest.LogCaptureFixture) -> None:
    """Also where the loggers are silent; and the more silent caveat counts."""

    async def scene(scene: Scene) -> None:
        told = scene.token(log_level("DEBUG"))
        loud, quiet = await scene.connect(told), await scene.connect(scene.token(number=2))
        silenced = await scene.connect(attenuate(told, log_level("WARN")))
        for client in (loud, quiet, silenced):
            await scene.read(client)
            await scene.beat(client)
        assert [name for name, _ in lines(caplog)] == ["kohort.fetch.t.0", "kohort.group.g.member.m"]
        assert told[8:30] not in caplog.text
        for _ in range(MOST_LINES):
            await scene.read(loud)
        # All in one second, by a holder that makes its token talkative itself.
        assert len(lines(caplog)) <= MOST_LINES + 2

    top = logging.getLogger("kohort")
    before = top.level
    try:
        top.setLevel(logging.WARNING)
        play(scene)
    finally:
        top.setLevel(before)


def test_loggers_that_clients_make_are_bounded() -> None:
    for name in ("kohort.fetch.", "kohort.group..x", "kohort.elsewhere.x", "kohort.fetch." + "t" * LONGEST_MADE):
        with pytest.raises(Refused, match="does not exist"):
            check_levels([(name, "DEBUG")])
    with pytest.raises(Refused, match="does not exist"):
        check_levels([("kohort.fetch.never.1", None)])
    log_levels._made.update(map(str, range(log_levels.MOST_MADE)))
    with pytest.raises(Refused, match="are there already"):
        check_levels([("kohort.fetch.another", "DEBUG")])


def test_label_is_in_the_journal_and_in_the_state_of_the_broker() -> None:
    """As the principal is; a label may have spaces."""

    async def scene(scene: Scene) -> None:
        member = await scene.connect(scene.token(operations("read"), label("night shift")))
        assert (await scene.beat(member)).error_code == 0
        root = await scene.connect(scene.token(number=3))
        history = await root.ask(PrivateApiKey.GROUP_HISTORY, 0, GroupHistoryRequest(group_id="g", after_sequence=0))
        (joined,) = [row for row in history.rows if row.event == "member_joined"]
        details = {each.name: each.value for each in joined.details}
        assert (details["principal"], details["label"]) == (member.connection.principal, "night shift")
        answer = await root.ask(PrivateApiKey.DESCRIBE_BROKER, 0, DescribeBrokerRequest())
        facts = {each.name: each.value for each in answer.facts}
        # With the token that has written the record.
        assert (facts["tokens"], facts["tokens.labels"], facts["tokens.revoked"]) == ("3", "'night shift':1", "0")

    play(scene)
    assert show_principal("Token:x", "night shift") == "Token:x (night shift)"
