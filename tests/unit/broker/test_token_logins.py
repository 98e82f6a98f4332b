"""Logins by capability tokens at a broker's listener: principals, sessions, refusals, and what a token lets do."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kohort.broker.access.capabilities import MOST_KEPT, Capabilities, CapabilityRights
from kohort.broker.fetch.ownership import OwnershipChange
from kohort.capabilities import (
    Caveat,
    RootKeys,
    attenuate,
    groups,
    label,
    member,
    mint,
    not_after,
    operations,
    partitions,
    peers,
    read_keys,
    topics,
    write_keys,
)
from kohort.errors import ConfigError, ErrorCode
from kohort.security.access_control import AclOperation, AclPermission, PatternType, ResourceType
from kohort.security.authorizer import Acl, Authorizer
from kohort.security.capabilities.caveats import CapabilityError
from kohort.security.sasl import BearerExchange
from kohort.simulation.clients.network import VirtualLoop, run_virtually
from kohort.wire.embedded import decode_assignment, encode_assignment, encode_subscription
from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import batch_of, encode_request, fetch_request, make, produce_request
from support.dialogues.login_dialogue import LoginDialogue, config_of
from support.dialogues.wired_connection import wired_broker
from support.peers.token_issuer import jwk, jwks

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
Application = Callable[[Any, Callable[[], LoginDialogue]], Awaitable[None]]


def virtually(application: Application, **more: object) -> None:
    async def play(loop: VirtualLoop) -> None:
        with wired_broker(config_of(**more)) as context:
            context.logins.start()
            try:
                await application(context, lambda: LoginDialogue(context))
            finally:
                context.logins.stop()

    run_virtually(play, Random("tokens"))


def token_of(context: Any, *caveats: Caveat, number: int = 7) -> str:
    return context.capabilities.mint(*caveats, token_id=bytes([number]) * 16)


async def create(context: Any, name: str, count: int) -> bytes:
    root = LoginDialogue(context)
    assert (await root.plain("alice", "wonder")).error_code == 0
    rows = [{"name": name, "num_partitions": count, "replication_factor": 1}]
    made = await root.ask(ApiKey.CREATE_TOPICS, 7, make(ApiKey.CREATE_TOPICS, topics=rows, timeout_ms=1_000))
    topic_id: bytes = made.topics[0].topic_id
    return topic_id


def test_token_is_the_password_of_the_user_token() -> None:
    """H6: a principal of its own, and a session that ends with the lease."""

    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        client, until_ms = connect(), context.clock.now_ms() + 60_000
        answer = await client.plain("token", token_of(context, operations("describe"), not_after(until_ms)))
        assert answer.error_code == 0
        assert answer.session_lifetime_ms == pytest.approx(60_000, abs=10)
        assert client.connection.principal.startswith("Token:")
        assert (await client.metadata()).cluster_id is not None
        # Another user still logs in by a password.
        assert (await connect().plain("alice", "wonder")).error_code == 0

    virtually(play)


def test_session_is_no_longer_than_the_listener_allows() -> None:
    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        until_ms = context.clock.now_ms() + 60_000
        answer = await connect().plain("token", token_of(context, not_after(until_ms)))
        assert answer.session_lifetime_ms == 5_000

    virtually(play, connections_max_reauth_ms=5_000)


def refused(number: int, *caveats: Caveat) -> Callable[[Any], str]:
    return lambda context: token_of(context, *caveats, number=number)


@pytest.mark.parametrize(
    ("make_token", "words"),
    [
        (refused(1, not_after(1)), "the token's lease has ended (not_after)"),
        (refused(2, peers("10.1.2.3")), "the caveat peers of the token refuses this client"),
        (refused(3, member("m")), "a token of one member is for its fetches and commits, and for no login"),
        (lambda context: token_of(context)[:-2], "cut off|not in base64url|was changed"),
        (lambda _: mint(RootKeys.of(b"o" * 32), token_id=bytes(16)), "a root key that is not in force here"),
    ],
)
def test_refusal_names_the_caveat_and_nothing_of_the_token(
    make_token: Callable[[Any], str], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        token = make_token(context)
        answer = await connect().plain("token", token)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert any(word in answer.error_message for word in words.split("|"))
        assert token[8:20] not in answer.error_message + caplog.text

    with caplog.at_level(logging.DEBUG, "kohort"):
        virtually(play)
    assert "event=login_failed" in caplog.text


def test_listener_may_take_no_tokens() -> None:
    """The password is then that of a user like any other, who is not known."""

    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        answer = await connect().plain("token", token_of(context))
        assert "Invalid username or password" in answer.error_message

    async def run() -> None:
        config = config_of(sasl_capability_tokens_enable=False, connection_failed_authentication_delay_ms=1)
        with wired_broker(config) as context:
            await play(context, lambda: LoginDialogue(context))

    asyncio.run(run())


def test_bearer_token_logs_in_and_a_refused_one_is_challenged(tmp_path: Path) -> None:
    """RFC 7628 §3.2.2, as for tokens of another issuer."""
    keys = tmp_path / "keys.json"
    keys.write_bytes(jwks(jwk("one")))
    more = {"sasl_enabled_mechanisms": "OAUTHBEARER", "sasl_oauthbearer_jwks_endpoint_url": keys.as_uri()}
    more["listener.name.sasl_plaintext.plain.sasl.jaas.config"] = None  # type: ignore[assignment]

    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        client = connect()
        assert (await client.choose("OAUTHBEARER")).error_code == 0
        answer = await client.say(BearerExchange(token_of(context, operations("describe"))).first())
        assert (answer.error_code, answer.auth_bytes) == (0, b"")
        assert client.connection.principal.startswith("Token:")
        other = connect()
        assert (await other.choose("OAUTHBEARER")).error_code == 0
        answer = await other.say(BearerExchange(token_of(context, not_after(1))).first())
        assert (answer.error_code, answer.auth_bytes) == (0, b'{"status":"invalid_token"}')
        end = await other.say(b"\x01")
        assert end.error_message == "Authentication failed: the token's lease has ended (not_after)"

    async def run(loop: VirtualLoop) -> None:
        config = {key: value for key, value in config_of(**more).items() if value is not None}
        with wired_broker(config) as context:
            context.logins.start()
            await play(context, lambda: LoginDialogue(context))
            context.logins.stop()

    run_virtually(run, Random("bearer"))


def test_later_login_renews_the_lease_of_the_same_holder_alone() -> None:
    """KIP-368: a token with a later lease is the same principal; another token, or a user, is another one."""

    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        client, now_ms = connect(), context.clock.now_ms()
        first = token_of(context, operations("read"), not_after(now_ms + 10_000))
        assert (await client.plain("token", first)).session_lifetime_ms <= 10_001
        later = token_of(context, operations("read"), not_after(now_ms + 50_000))
        answer = await client.plain("token", later)
        assert (answer.error_code, answer.session_lifetime_ms > 10_001) == (0, True)
        await asyncio.sleep(2)
        other = await client.plain("token", token_of(context, operations("read"), number=8))
        assert "Cannot change principals" in other.error_message

    virtually(play)


def test_each_row_is_refused_for_itself() -> None:
    """Produce, fetch and commit, by the caveats about topics and partitions."""

    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        ids = {name: await create(context, name, 2) for name in ("mine", "other")}
        client = connect()
        wide = token_of(context, operations("read", "write", "commit"), topics("mine"), groups("g"))
        assert (await client.plain("token", attenuate(wide, partitions({"mine": [1]})))).error_code == 0

        async def produce(topic: str, partition: int) -> int:
            answer = await client.ask(ApiKey.PRODUCE, 9, produce_request(topic, batch_of(b"a"), partition=partition))
            return int(answer.responses[0].partition_responses[0].error_code)

        assert [await produce("mine", 0), await produce("mine", 1), await produce("other", 1)] == [DENIED, 0, DENIED]
        found = {}
        for name, partition in (("mine", 0), ("mine", 1), ("other", 1)):
            request = fetch_request(name, topic_id=ids[name], partition=partition, max_wait_ms=0)
            answer = await client.ask(ApiKey.FETCH, 13, request)
            found[name, partition] = answer.responses[0].partitions[0].error_code
        assert found == {("mine", 0): DENIED, ("mine", 1): 0, ("other", 1): DENIED}
        rows = [
            {"name": name, "partitions": [_offset(number) for number in numbers]}
            for name, numbers in (("mine", (0, 1)), ("other", (1,)))
        ]
        answer = await client.ask(ApiKey.OFFSET_COMMIT, 9, make(ApiKey.OFFSET_COMMIT, group_id="g", topics=rows))
        codes = [[row.error_code for row in topic.partitions] for topic in answer.topics]
        assert codes == [[DENIED, 0], [DENIED]]
        named = [{"name": name, "partition_indexes": [0, 1]} for name in ("mine", "other")]
        asked = make(ApiKey.OFFSET_FETCH, groups=[{"group_id": "g", "topics": named}])
        (group,) = (await client.ask(ApiKey.OFFSET_FETCH, 9, asked)).groups
        told = {
            topic.name: [(row.error_code, row.committed_offset) for row in topic.partitions] for topic in group.topics
        }
        assert told == {"mine": [(DENIED, -1), (0, 1)], "other": [(DENIED, -1)] * 2}
        ends = [{"name": "mine", "partitions": [{"partition_index": each, "timestamp": -1} for each in (0, 1)]}]
        answer = await client.ask(ApiKey.LIST_OFFSETS, 6, make(ApiKey.LIST_OFFSETS, topics=ends))
        assert [(row.error_code, row.offset) for row in answer.topics[0].partitions] == [(DENIED, -1), (0, 1)]
        answer = await client.ask(ApiKey.OFFSET_COMMIT, 9, make(ApiKey.OFFSET_COMMIT, group_id="h", topics=rows[:1]))
        assert {row.error_code for row in answer.topics[0].partitions} == {ErrorCode.GROUP_AUTHORIZATION_FAILED}

    virtually(play)


def _offset(partition: int) -> dict[str, Any]:
    return {"partition_index": partition, "committed_offset": 1, "committed_metadata": ""}


def rights_of(*caveats: Caveat, acls: tuple[Acl, ...] | None = None) -> CapabilityRights:
    own = Capabilities(None, lambda: 0)
    capability = own.verify(own.mint(*caveats, token_id=bytes(16)))
    authorizer = None if acls is None else Authorizer()
    if authorizer is not None:
        authorizer.add(*(acl._replace(principal=f"Token:{capability.id}") for acl in acls or ()))
    return CapabilityRights(capability, "127.0.0.1", authorizer, lambda: 0)


def test_reading_is_no_right_to_commit() -> None:
    reader, committer = rights_of(operations("read")), rights_of(operations("commit"))
    assert (reader.allows(AclOperation.READ, TOPIC, "t"), reader.allows_commit("t")) == (True, False)
    assert (committer.allows(AclOperation.READ, TOPIC, "t"), committer.allows_commit("t")) == (False, True)
    # Either is a member of its group.
    assert [each.allows(AclOperation.READ, GROUP, "g") for each in (reader, committer)] == [True, True]


def test_entry_that_denies_the_token_narrows_it_and_none_that_allows_widens_it() -> None:
    deny = Acl(TOPIC, PatternType.PREFIXED, "a", "", "*", AclOperation.READ, AclPermission.DENY)
    allow = Acl(TOPIC, PatternType.LITERAL, "z", "", "*", AclOperation.ALL, AclPermission.ALLOW)
    rights = rights_of(operations("read", "commit"), topics("abc", "b"), acls=(deny, allow))
    assert [rights.allows(AclOperation.READ, TOPIC, name) for name in ("abc", "b", "z")] == [False, True, False]
    assert [rights.allows_commit(name) for name in ("abc", "b", "z")] == [False, True, False]
    assert rights.allows(AclOperation.DESCRIBE, TOPIC, "abc")


def test_token_without_names_may_administrate_and_one_with_a_topic_may_not() -> None:
    assert rights_of().allows(AclOperation.ALTER, CLUSTER)
    assert not rights_of(topics("t")).allows(AclOperation.ALTER, CLUSTER)
    assert rights_of(topics("t")).operations(TOPIC, "u") == 0


def test_keys_are_made_once_kept_and_read_again_when_they_change(tmp_path: Path) -> None:
    async def play(loop: VirtualLoop) -> None:
        first = Capabilities(str(tmp_path), lambda: 0)
        token = first.mint(label("old"), token_id=bytes(16))
        path = tmp_path / "capability.keys"
        assert path.stat().st_mode & 0o777 == 0o600
        second = Capabilities(str(tmp_path), lambda: 0)
        assert second.verify(token).label == "old"
        second.start(loop)
        for secret in (b"n" * 32, b"m" * 32):
            write_keys(path, read_keys(path).rotated(secret))
        await asyncio.sleep(3)
        # Two are alive: the key before the one before has ended.
        with pytest.raises(CapabilityError, match="not in force"):
            second.verify(token)
        newer = mint(read_keys(path), token_id=bytes(16))
        path.write_text("torn")
        await asyncio.sleep(3)
        assert second.verify(newer)
        second.stop()

    run_virtually(play, Random("keys"))


@pytest.mark.logs_bugs
def test_keys_that_others_may_read_are_refused_by_name(tmp_path: Path) -> None:
    write_keys(tmp_path / "capability.keys", RootKeys.of(bytes(32)))
    os.chmod(tmp_path / "capability.keys", 0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        Capabilities(str(tmp_path), lambda: 0).prepare()


def test_kept_tokens_are_bounded_and_revoked_ones_are_not_served() -> None:
    own = Capabilities(None, lambda: 0)
    tokens = [own.mint(token_id=number.to_bytes(16, "big")) for number in range(MOST_KEPT + 1)]
    for token in tokens:
        own.verify(token)
    assert len(own._kept) == MOST_KEPT
    own.is_revoked = lambda _: True
    with pytest.raises(CapabilityError, match="revoked"):
        own.verify(tokens[-1])


def test_connections_of_a_revoked_token_end_and_others_go_on() -> None:
    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        gone, stays = connect(), connect()
        assert (await gone.plain("token", token_of(context, label("gone"), number=1))).error_code == 0
        assert (await stays.plain("token", token_of(context, label("stays"), number=2))).error_code == 0
        context.capabilities.is_revoked = lambda capability: capability.label == "gone"
        context.logins.end_tokens()
        await gone.ends()
        assert (await stays.metadata()).cluster_id is not None

    virtually(play)


class Stock:
    """A stock client that is a member by one connection and fetches by another one, each with its token."""

    def __init__(self, connect: Callable[[], LoginDialogue], topic_id: bytes, member_id: str, group_id: str) -> None:
        self.beats, self.fetches = connect(), connect()
        self._topic_id, self.member_id, self._group_id = topic_id, member_id, group_id

    async def log_in(self, beats: str, fetches: str) -> Stock:
        assert (await self.beats.plain("token", beats)).error_code == 0
        assert (await self.fetches.plain("token", fetches)).error_code == 0
        return self

    async def beat(self, epoch: int, owned: list[int] | None = None) -> list[int]:
        """The partitions that it is told."""
        rows = [{"topic_id": self._topic_id, "partitions": owned}] if owned else []
        known: dict[str, Any] = {"topic_partitions": rows} if owned is not None or not epoch else {}
        known |= {} if epoch else {"rebalance_timeout_ms": 10_000, "subscribed_topic_names": ["t"]}
        key = ApiKey.CONSUMER_GROUP_HEARTBEAT
        request = make(key, group_id=self._group_id, member_id=self.member_id, member_epoch=epoch, **known)
        answer = await self.beats.ask(key, 1, request)
        assert answer.error_code == 0
        told = answer.assignment.topic_partitions if answer.assignment is not None else []
        return [number for row in told for number in row.partitions]

    async def commit(self, epoch: int, partition: int) -> int:
        """The code of a commit of the first record."""
        rows = [{"name": "t", "partitions": [_offset(partition)]}]
        request = make(
            ApiKey.OFFSET_COMMIT, group_id=self._group_id, member_id=self.member_id,
            generation_id_or_member_epoch=epoch, topics=rows,
        )  # fmt: skip
        answer = await self.beats.ask(ApiKey.OFFSET_COMMIT, 9, request)
        return int(answer.topics[0].partitions[0].error_code)

    async def committed(self, partition: int) -> int:
        """The committed offset of a partition."""
        rows = [{"name": "t", "partition_indexes": [partition]}]
        groups = [{"group_id": self._group_id, "member_id": self.member_id, "member_epoch": 2, "topics": rows}]
        answer = await self.beats.ask(ApiKey.OFFSET_FETCH, 9, make(ApiKey.OFFSET_FETCH, groups=groups))
        return int(answer.groups[0].topics[0].partitions[0].committed_offset)

    async def read(self) -> list[tuple[int, bool]]:
        """Code, and whether there are records, of each partition."""
        found = []
        for partition in (0, 1):
            request = fetch_request("t", topic_id=self._topic_id, partition=partition)
            row = (await self.fetches.ask(ApiKey.FETCH, 13, request)).responses[0].partitions[0]
            found.append((row.error_code, bool(row.records)))
        return found


async def hand_over(mine: Stock, heir: Stock) -> list[int]:
    """One of two partitions moves; those that stay."""
    assert await mine.beat(0) == [0, 1]
    await mine.beat(1, [0, 1])
    await heir.beat(0)
    kept = await mine.beat(1)
    assert len(kept) == 1
    await mine.beat(1, kept)
    await heir.beat(2)
    return kept


BOTH = [(0, True), (0, True)]
MEMBERS = {"group_consumer_assignment_window_ms": 0}


async def filled(context: Any) -> bytes:
    """The id of a topic of two partitions with a record each."""
    topic_id = await create(context, "t", 2)
    writer = LoginDialogue(context)
    assert (await writer.plain("alice", "wonder")).error_code == 0
    for partition in (0, 1):
        await writer.ask(ApiKey.PRODUCE, 9, produce_request("t", batch_of(b"x"), partition=partition))
    return topic_id


def hear(context: Any) -> list[tuple[str, bool, list[int]]]:
    """What the leader is told from now on: a member, whether it gains, and the partitions."""
    told: list[tuple[str, bool, list[int]]] = []
    change = context.ownership.change

    def note(message: OwnershipChange, now_ms: int) -> None:
        told.append((message.member_id, message.is_open, [number for _, number in message.places]))
        change(message, now_ms)

    context.ownership.change = note
    return told


def test_nine_steps_of_a_move_between_stock_clients_with_tokens() -> None:
    """T14, 16 July 2014: fence, leaders, told, commit, acknowledgement, open, told; each known by its token."""

    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        topic_id = await filled(context)
        told = hear(context)
        mine, its = token_of(context, number=0), token_of(context, number=1)
        first = await Stock(connect, topic_id, "a", "g").log_in(mine, mine)
        second = await Stock(connect, topic_id, "b", "g").log_in(its, its)
        # 1. to 3. One consumer has both partitions and reads them; another one joins.
        assert await first.beat(0) == [0, 1]
        await first.beat(1, [0, 1])
        assert await first.read() == BOTH
        told.clear()
        assert await second.beat(0) == []
        # 4. to 6. The leader knows before the removal is told, and fails the fetches of that partition alone.
        kept = await first.beat(1)
        (lost,) = {0, 1} - set(kept)
        assert told == [("a", False, [lost])]
        own = [(0, number in kept) for number in (0, 1)]
        # 7. It fetches on what is its own; a fetch of the other partition has no records, and no error.
        assert await first.read() == own
        # 8. It commits, and acknowledges that it has let go.
        assert await first.commit(1, lost) == ErrorCode.NONE
        assert (await second.beat(2), told[1:]) == ([], [])
        await first.beat(1, kept)
        assert await first.commit(1, lost) == ErrorCode.STALE_MEMBER_EPOCH
        # 9. The leader knows before the addition is told, and serves the next one from where the first one was.
        assert (await second.beat(2), told[1:]) == ([lost], [("b", True, [lost])])
        await second.beat(2, [lost])
        assert await second.committed(lost) == 1
        assert [records for _, records in await second.read()][lost]
        assert await first.read() == own

    virtually(play, **MEMBERS)


class ClassicStock(Stock):
    """The same with the classic protocol, as kafka-python and aiokafka speak it: "range", and all is given up first."""

    def join(self) -> None:
        """Ask to join; `joined` has the answer, which waits for the other members."""
        metadata = encode_subscription(["t"])
        request = make(
            ApiKey.JOIN_GROUP, group_id=self._group_id, member_id=self.member_id, session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000, protocol_type="consumer", protocols=[{"name": "range", "metadata": metadata}],
        )  # fmt: skip
        self.beats.feed(encode_request(ApiKey.JOIN_GROUP, 3, request))

    async def joined(self) -> Any:
        ((_, answer),) = await self.beats.receive(ApiKey.JOIN_GROUP, 3)
        assert answer.error_code == 0
        self.member_id = answer.member_id
        return answer

    async def sync(self, generation: int, shares: Mapping[str, list[int]]) -> list[int]:
        """The partitions that its leader gives it; `shares`: of the leader."""
        rows = [
            {"member_id": member, "assignment": encode_assignment({"t": numbers})} for member, numbers in shares.items()
        ]
        request = make(
            ApiKey.SYNC_GROUP, group_id=self._group_id, generation_id=generation, member_id=self.member_id,
            assignments=rows,
        )  # fmt: skip
        answer = await self.beats.ask(ApiKey.SYNC_GROUP, 2, request)
        assert answer.error_code == 0
        return list(decode_assignment(answer.assignment).partitions["t"])


def test_move_between_classic_stock_clients_with_tokens() -> None:
    """T14's steps where they take part: all is given up, the group's leader shares, brokers know before members."""

    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        topic_id = await filled(context)
        told = hear(context)
        mine, its = token_of(context, number=0), token_of(context, number=1)
        first = await ClassicStock(connect, topic_id, "", "g").log_in(mine, mine)
        second = await ClassicStock(connect, topic_id, "", "g").log_in(its, its)
        first.join()
        generation = (await first.joined()).generation_id
        assert await first.sync(generation, {first.member_id: [0, 1]}) == [0, 1]
        assert await first.read() == BOTH
        # Another one joins; the first one commits, gives all up, and joins again.
        second.join()
        await asyncio.sleep(0.1)
        assert await first.commit(generation, 1) == ErrorCode.NONE
        first.join()
        generation = (await first.joined()).generation_id
        await second.joined()
        told.clear()
        a, b = first.member_id, second.member_id
        assert await first.sync(generation, {a: [0], b: [1]}) == [0]
        assert told[0] == (a, False, [1]) and (b, True, [1]) in told
        assert await second.sync(generation, {}) == [1]
        # The former owner fetches on in vain, and may not commit by its former generation.
        assert await first.read() == [(0, True), (0, False)]
        assert await first.commit(generation - 1, 1) == ErrorCode.ILLEGAL_GENERATION
        assert [records for _, records in await second.read()][1]

    virtually(play, group_initial_rebalance_delay_ms=0)


@pytest.mark.parametrize("labels", [[], ["again"], ["again", "and-again"]])
@pytest.mark.parametrize("is_gone", [True, False])
def test_former_owner_with_a_token_reads_no_record_more(labels: list[str], is_gone: bool) -> None:
    """H5 for a stock client: it is known by its token, by each that it makes of it, and without its heartbeats."""

    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        topic_id = await filled(context)
        mine, its = token_of(context, number=0), token_of(context, number=1)
        former = Stock(connect, topic_id, "a", "g")
        await former.log_in(mine, attenuate(mine, *map(label, labels)))
        heir = await Stock(connect, topic_id, "b", "g").log_in(its, its)
        kept = await hand_over(former, heir)
        if is_gone:
            former.beats.connection.connection_lost(None)
        assert await former.read() == [(0, partition in kept) for partition in (0, 1)]
        assert (0, True) in await heir.read()

    virtually(play, **MEMBERS)


def test_former_owner_that_logs_in_anew_with_a_label_is_the_same_member() -> None:
    """Its heartbeats come by the narrower token as well."""

    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        topic_id = await filled(context)
        mine, its = token_of(context, number=0), token_of(context, number=1)
        former = await Stock(connect, topic_id, "a", "g").log_in(mine, mine)
        heir = await Stock(connect, topic_id, "b", "g").log_in(its, its)
        kept = await hand_over(former, heir)
        labelled = attenuate(mine, label("again"))
        former.beats, former.fetches = connect(), connect()
        await former.log_in(labelled, labelled)
        await former.beat(2)
        assert await former.read() == [(0, partition in kept) for partition in (0, 1)]

    virtually(play, **MEMBERS)


@pytest.mark.parametrize("labels", [[], ["other"]])
def test_member_of_another_group_reads_on_beside_a_former_owner_with_its_token(labels: list[str]) -> None:
    """One token for two groups, or one that was made of the other: a guess must not starve a member."""

    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        topic_id = await filled(context)
        mine, its = token_of(context, number=0), token_of(context, number=1)
        shared = attenuate(mine, *map(label, labels))
        former = await Stock(connect, topic_id, "a", "g").log_in(mine, mine)
        heir = await Stock(connect, topic_id, "b", "g").log_in(its, its)
        early, late = [await Stock(connect, topic_id, "c", group).log_in(shared, shared) for group in ("h", "i")]
        await early.beat(0)
        await hand_over(former, heir)
        await late.beat(0)
        assert [await early.read(), await late.read()] == [BOTH, BOTH]

    virtually(play, **MEMBERS)


def test_heartbeat_is_not_held_over_the_time_of_a_later_login() -> None:
    """librdkafka sends its later login, at nine tenths of the session, when no request of it is unanswered."""

    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        owned = [{"topic_id": await create(context, "t", 1), "partitions": [0]}]
        client, token_of_it = connect(), token_of(context, not_after(context.clock.now_ms() + 3_000_000))
        request = ApiVersionsRequest(client_software_name="librdkafka", client_software_version="1")
        await client.ask(ApiKey.API_VERSIONS, 3, request)
        assert (await client.plain("token", token_of_it)).session_lifetime_ms == 10_000

        async def beat(epoch: int, **fields: Any) -> float:
            """How long its answer takes."""
            began, key = context.loop.time(), ApiKey.CONSUMER_GROUP_HEARTBEAT
            answer = await client.ask(key, 1, make(key, group_id="g", member_id="m", member_epoch=epoch, **fields))
            assert answer.error_code == 0
            epochs.append(answer.member_epoch)
            return float(context.loop.time() - began)

        epochs: list[int] = []
        await beat(0, rebalance_timeout_ms=10_000, subscribed_topic_names=["t"], topic_partitions=[])
        await beat(epochs[0], topic_partitions=owned)
        # The one that is held when eight tenths are over is answered then, and the next one at once.
        answered = [await beat(epochs[0]) for _ in range(3)]
        assert context.loop.time() == pytest.approx(8, abs=0.2)
        assert answered[0] > 2
        assert await beat(epochs[0]) == pytest.approx(0, abs=0.1)
        assert (await client.plain("token", token_of_it)).error_code == 0
        assert await beat(epochs[0]) > 2

    config = {"group_consumer_assignment_window_ms": 0, "group_push_enable": True}
    virtually(play, connections_max_reauth_ms=10_000, **config)
