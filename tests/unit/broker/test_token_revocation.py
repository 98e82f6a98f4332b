"""Revoked tokens at a broker: what ends with them and when, what is remembered, and what the APIs refuse."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

import kohort
from kohort.broker.topics.revocations import KEPT_MS, MOST_REVOCATIONS, NO_END_MS, Revocations
from kohort.capabilities import Caveat, attenuate, label, not_after, operations, read_keys, topics, verify
from kohort.errors import AuthenticationError, BrokerError, ConfigError, ErrorCode
from kohort.simulation.clients.network import VirtualLoop, run_virtually
from kohort.storage.catalog import Catalog, CatalogChange
from kohort.wire.messages.describe_tokens import DescribeTokensRequest
from kohort.wire.messages.revoke_tokens import RevocationToMake, RevokeTokensRequest
from kohort.wire.private import PrivateApiKey
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import encode_request, fetch_request, make
from support.dialogues.login_dialogue import LoginDialogue, config_of
from support.dialogues.wired_connection import wired_broker

ID, LABEL = 0, 1
Application = Callable[[Any, Callable[[], LoginDialogue]], Awaitable[None]]


def virtually(application: Application) -> None:
    async def play(loop: VirtualLoop) -> None:
        with wired_broker(config_of()) as context:
            context.logins.start()
            await application(context, lambda: LoginDialogue(context))
            context.logins.stop()

    run_virtually(play, Random("revoked"))


def token_of(context: Any, *caveats: Caveat, number: int = 7) -> str:
    return str(context.capabilities.mint(*caveats, token_id=bytes([number]) * 16))


async def steward(connect: Callable[[], LoginDialogue]) -> LoginDialogue:
    root = connect()
    assert (await root.plain("alice", "wonder")).error_code == 0
    return root


async def revoke(root: LoginDialogue, *rows: tuple[int, str], end_ms: int = NO_END_MS) -> Any:
    wanted = [RevocationToMake(kind=kind, name=name, not_after_ms=end_ms) for kind, name in rows]
    return await root.ask(PrivateApiKey.REVOKE_TOKENS, 0, RevokeTokensRequest(revocations=wanted))


async def listed(root: LoginDialogue) -> Any:
    return await root.ask(PrivateApiKey.DESCRIBE_TOKENS, 0, DescribeTokensRequest())


def test_parent_that_is_revoked_ends_its_children_and_no_other() -> None:
    """H6: a parent's end is its children's; a child's is not its parent's."""

    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        parent = token_of(context, operations("describe"))
        child = attenuate(parent, topics("t"))
        sibling = attenuate(parent, topics("u"))
        holders: dict[str, LoginDialogue] = {}
        for name, token in (("parent", parent), ("child", child), ("sibling", sibling)):
            holders[name] = connect()
            assert (await holders[name].plain("token", token)).error_code == 0
        root = await steward(connect)
        ids = context.capabilities.verify(child).chain
        assert (await revoke(root, (ID, ids[-1]))).error_code == 0
        await holders["child"].ends()
        assert (await holders["parent"].metadata()).cluster_id is not None
        assert (await holders["sibling"].metadata()).cluster_id is not None
        assert (await revoke(root, (ID, ids[0]))).error_code == 0
        await holders["parent"].ends()
        await holders["sibling"].ends()
        answer = await connect().plain("token", sibling)
        assert answer.error_message == "Authentication failed: the token was revoked"

    virtually(play)


def test_waiting_fetch_ends_within_a_turn_of_the_loop() -> None:
    """Before the revocation is answered or in the same moment: the time of the loop does not move."""

    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        root = await steward(connect)
        rows = [{"name": "t", "num_partitions": 1, "replication_factor": 1}]
        made = await root.ask(ApiKey.CREATE_TOPICS, 7, make(ApiKey.CREATE_TOPICS, topics=rows, timeout_ms=1_000))
        reader = connect()
        assert (await reader.plain("token", token_of(context, operations("read"), label("a")))).error_code == 0
        request = fetch_request("t", topic_id=made.topics[0].topic_id, max_wait_ms=30_000, min_bytes=1)
        reader.feed(encode_request(ApiKey.FETCH, 13, request))
        await asyncio.sleep(1)
        assert len(context.purgatory) == 1
        before = context.loop.time()
        assert (await revoke(root, (LABEL, "a"))).error_code == 0
        await reader.ends()
        assert context.loop.time() == before
        # As the socket says when it is closed.
        reader.connection.connection_lost(None)
        assert len(context.purgatory) == 0

    virtually(play)


def test_holder_that_has_named_itself_anew_ends_with_its_former_label() -> None:
    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        root = await steward(connect)
        tokens = [token_of(context, label(each), number=number) for number, each in enumerate(("team", "teams"))]
        tokens[0] = attenuate(tokens[0], label("app"))
        clients = [connect() for _ in tokens]
        for client, token in zip(clients, tokens, strict=True):
            assert (await client.plain("token", token)).error_code == 0
        found = await listed(root)
        assert sorted((row.label, row.connections, row.not_after_ms) for row in found.tokens) == [
            ("team/app", 1, NO_END_MS),
            ("teams", 1, NO_END_MS),
        ]
        # The end of a label alone is no name of its holder.
        assert (await revoke(root, (LABEL, "app"))).error_code == 0
        assert (await clients[0].metadata()).cluster_id is not None
        assert (await revoke(root, (LABEL, "team"))).error_code == 0
        await clients[0].ends()
        clients[0].connection.connection_lost(None)
        assert (await clients[1].metadata()).cluster_id is not None
        assert [row.label for row in (await listed(root)).tokens] == ["teams"]

    virtually(play)


@pytest.mark.parametrize(
    "row", [(ID, "orders"), (ID, ""), (ID, "kh1." + "A" * 18), (2, "A" * 22), (LABEL, ""), (LABEL, "a//b"), (-1, "a")]
)
def test_name_that_no_token_has_is_refused_and_nothing_changes(row: tuple[int, str]) -> None:
    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        root = await steward(connect)
        answer = await revoke(root, (LABEL, "right"), row)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert "kh1." not in answer.error_message
        assert (await listed(root)).revocations == []

    virtually(play)


def test_revocation_takes_alter_on_the_cluster_and_the_list_describe() -> None:
    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        client = connect()
        assert (await client.plain("token", token_of(context, operations("describe")))).error_code == 0
        assert (await revoke(client, (LABEL, "a"))).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert (await listed(client)).error_code == ErrorCode.NONE
        narrow = connect()
        assert (await narrow.plain("token", token_of(context, operations("read"), topics("t")))).error_code == 0
        # A token for a topic shows no more of the cluster than its address.
        assert (await revoke(narrow, (LABEL, "a"))).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert (await listed(narrow)).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    virtually(play)


def test_number_of_revocations_is_bounded() -> None:
    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        root = await steward(connect)
        rows = [(LABEL, str(number)) for number in range(MOST_REVOCATIONS)]
        assert (await revoke(root, *rows[1:])).error_code == 0
        assert (await revoke(root, rows[0])).error_code == 0
        assert (await revoke(root, (LABEL, "more"))).error_code == ErrorCode.POLICY_VIOLATION
        assert (await revoke(root, *rows, (LABEL, "more"))).error_code == ErrorCode.POLICY_VIOLATION
        # What is there already may be asked for again.
        assert (await revoke(root, rows[0])).error_code == 0

    virtually(play)


class Clock:
    """A catalog in memory, and a time of day that a test moves."""

    def __init__(self) -> None:
        self.catalog, self.now_ms = Catalog(), 10 * KEPT_MS

    def plan_revocations(self, added: Any, gone: Any, then: Callable[[], None]) -> Any:
        change = CatalogChange(revocations=(*added.items(),), revocations_gone=(*gone,))
        return change, then


def revoked(clock: Clock, own: Revocations, name: str, end_ms: int) -> list[str]:
    """Revoke a label; which are in force then."""
    change, then = own.revocation({(LABEL, name): end_ms}, lambda _: None).plan()  # type: ignore[misc]
    # As it is read from the file again.
    clock.catalog = clock.catalog.changed(CatalogChange.of(json.loads(json.dumps(change.document()))))
    then()
    return [name for _, name in clock.catalog.revocations]


def test_revocation_is_forgotten_when_the_last_lease_is_over_and_not_before() -> None:
    """A clock that is put back by less than an hour brings no revoked token back."""
    clock = Clock()
    own = Revocations(clock, lambda: clock.now_ms)  # type: ignore[arg-type]
    start_ms = clock.now_ms
    assert revoked(clock, own, "a", start_ms + 1_000) == ["a"]
    # A later end counts, an earlier one does not.
    assert revoked(clock, own, "a", start_ms + 5_000) == ["a"]
    assert revoked(clock, own, "a", start_ms + 2_000) == ["a"]
    clock.now_ms = start_ms + 5_000 + KEPT_MS
    assert revoked(clock, own, "b", NO_END_MS) == ["a", "b"]
    assert [name for (_, name), _ in own.rows()] == ["b"]
    clock.now_ms += 1
    assert revoked(clock, own, "c", clock.now_ms) == ["b", "c"]
    # Of a lease that was over long ago nothing is kept; nor is anything lost when the clock jumps ahead.
    assert revoked(clock, own, "d", start_ms) == ["b", "c"]
    clock.now_ms = (1 << 63) - 1
    assert revoked(clock, own, "e", clock.now_ms) == ["b", "e"]
    # As after a restart.
    assert len(Revocations(clock, lambda: clock.now_ms)) == 2  # type: ignore[arg-type]


def test_revocation_outlives_a_restart_and_no_text_has_the_token(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_of() | {"listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"}
    config["super.users"] = "User:ANONYMOUS"
    texts: list[str] = []
    with caplog.at_level(logging.DEBUG, "kohort"):
        for run in range(2):
            with kohort.Broker(config=config, data_dir=str(tmp_path)) as broker:
                keys = read_keys(tmp_path / "capability.keys")
                if not run:
                    token = kohort.capabilities.mint(keys, not_after(NO_END_MS), label("x"), token_id=bytes(16))
                options: dict[str, Any] = {
                    "bootstrap_servers": broker.bootstrap_of("SASL_PLAINTEXT"),
                    "security_protocol": "SASL_PLAINTEXT",
                    "sasl_mechanism": "PLAIN",
                    "sasl_plain_username": "token",
                    "sasl_plain_password": token,
                }
                with (
                    kohort.Admin(bootstrap_servers=broker.bootstrap_of("PLAINTEXT")) as root,
                    kohort.Admin(**options) as client,
                ):
                    if not run:
                        client.list_topics()
                        texts.append(repr(root.describe_tokens()))
                        with pytest.raises(ConfigError, match="only its id"):
                            root.revoke_tokens([token])
                        with pytest.raises(BrokerError):
                            root.revoke_tokens(["orders"])
                        root.revoke_tokens([verify(token, keys).id])
                    with pytest.raises(AuthenticationError, match="the token was revoked") as refused:
                        client.list_topics()
                    texts += [str(refused.value), repr(client), repr(root.describe_tokens())]
    files = b"".join(each.read_bytes() for each in tmp_path.rglob("*") if each.is_file())
    secret = token[-30:]
    assert secret not in caplog.text + "".join(texts)
    assert secret.encode() not in files
