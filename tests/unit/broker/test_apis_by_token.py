"""Every API key without a login, by a wrong, a revoked and a narrow token: what is done, told and answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from random import Random
from typing import Any, Final

import pytest

from kohort.broker.access.required_rights import REQUIRED_RIGHTS
from kohort.broker.topics.revocations import NO_END_MS
from kohort.capabilities import Caveat, RootKeys, attenuate, groups, label, mint, not_after, operations, peers, topics
from kohort.errors import ErrorCode
from kohort.simulation.clients.network import run_virtually
from kohort.wire.codec import encode
from kohort.wire.messages.revoke_tokens import RevocationToMake, RevokeTokensRequest
from kohort.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from kohort.wire.messages.sasl_handshake import SaslHandshakeRequest
from kohort.wire.private import PrivateApiKey
from kohort.wire.registry import AnyApiKey, ApiKey
from kohort.wire.schema import Message, fields_of
from support.dialogues.broker_wire import encode_request
from support.dialogues.login_dialogue import LoginDialogue, config_of
from support.dialogues.wired_connection import wired_broker
from support.scenarios.needed_rights import prepare, requests_of, served_keys, state_of, tells

#: What a client may ask before its login.
OPEN: Final = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
GUARDED: Final = [key for key in served_keys() if key not in OPEN]
REFUSED: Final = ErrorCode.SASL_AUTHENTICATION_FAILED
EVERYTHING: Final = ("read", "write", "commit", "create", "delete", "alter", "describe_configs", "alter_configs")
Scene = Callable[[Any, LoginDialogue, dict[str, bytes]], Awaitable[None]]


def play(scene: Scene) -> None:
    """In a broker with the topics and groups of `prepare`, and a client that may do everything."""

    async def main(_: object) -> None:
        more = {"group.consumer.assignment.window.ms": 0, "auto.create.topics.enable": True}
        with wired_broker({**config_of(sasl_failures_per_second_per_ip=1_000), **more}) as context:
            context.logins.start()
            root = LoginDialogue(context)
            assert (await root.plain("alice", "wonder")).error_code == 0
            await scene(context, root, await prepare(root))
            context.logins.stop()

    run_virtually(main, Random("apis by token"))


def requests(ids: dict[str, bytes], keys: list[AnyApiKey] = GUARDED) -> Iterator[tuple[AnyApiKey, int, Message]]:
    return ((key, version, request) for key in keys for version, request in requests_of(key, ids))


def token_of(context: Any, *caveats: Caveat, number: int = 7) -> str:
    return str(context.capabilities.mint(*caveats, token_id=bytes([number]) * 16))


async def revoke(root: LoginDialogue, name: str) -> None:
    row = RevocationToMake(kind=1, name=name, not_after_ms=NO_END_MS)
    assert (await root.ask(PrivateApiKey.REVOKE_TOKENS, 0, RevokeTokensRequest(revocations=[row]))).error_code == 0


def test_no_api_is_read_before_a_login() -> None:
    """As at Apache Kafka the connection ends without an answer."""

    async def scene(context: Any, root: LoginDialogue, ids: dict[str, bytes]) -> None:
        before = state_of(context)
        for key, version, request in requests(ids):
            client = LoginDialogue(context)
            client.feed(encode_request(key, version, request))
            await client.ends()
            assert not client.has_written, key
        assert state_of(context) == before

    play(scene)


def changed(context: Any) -> str:
    token = token_of(context, operations("read"))
    return token[:-4] + ("AAAA" if token[-4:] != "AAAA" else "BBBB")


WRONG: Final[Mapping[str, Callable[[Any], str]]] = {
    "of another key": lambda _: mint(RootKeys.of(b"o" * 32), token_id=bytes(16)),
    "changed": changed,
    "cut off": lambda context: token_of(context)[:20],
    "over": lambda context: token_of(context, not_after(1)),
    "of another peer": lambda context: token_of(context, peers("10.1.2.3")),
    "revoked": lambda context: token_of(context, label("gone")),
    "of a revoked one": lambda context: attenuate(token_of(context, label("gone")), topics("seen")),
}


@pytest.mark.parametrize("kind", WRONG)
def test_no_api_is_read_behind_a_token_that_is_refused(kind: str) -> None:
    """The refusal is answered by its code, whatever is sent with it is not read, and the connection ends."""

    async def scene(context: Any, root: LoginDialogue, ids: dict[str, bytes]) -> None:
        await revoke(root, "gone")
        before, token = state_of(context), WRONG[kind](context)
        words = SaslAuthenticateRequest(auth_bytes=f"\0token\0{token}".encode())
        # One form of each API: the login is what is tried here.
        for key in GUARDED:
            version, request = next(iter(requests_of(key, ids)))
            client = LoginDialogue(context)
            client.feed(encode_request(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN")))
            ((_, chosen),) = await client.receive(ApiKey.SASL_HANDSHAKE, 1)
            assert chosen.error_code == 0
            client.feed(encode_request(ApiKey.SASL_AUTHENTICATE, 2, words), encode_request(key, version, request))
            await client.ends()
            ((_, answer),) = client.take_answers(ApiKey.SASL_AUTHENTICATE, 2)
            assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (REFUSED, b"", 0), key
            assert token[8:20] not in answer.error_message
        assert state_of(context) == before

    play(scene)


def codes_of(message: Message) -> Iterator[ErrorCode]:
    """All error codes of an answer."""
    for field in fields_of(type(message)):
        value = getattr(message, field.name)
        if field.name == "error_code":
            yield ErrorCode(value)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Message):
                yield from codes_of(each)


def test_a_narrow_token_does_and_is_told_nothing_beyond_it() -> None:
    """Every API and form of request, for another topic and group: a code of the table, and nothing else."""

    async def scene(context: Any, root: LoginDialogue, ids: dict[str, bytes]) -> None:
        before, narrow = state_of(context), token_of(context, operations(*EVERYTHING), topics("none"), groups("none"))
        found: dict[AnyApiKey, set[ErrorCode]] = {}
        client = LoginDialogue(context)
        assert (await client.plain("token", narrow)).error_code == 0
        for key, version, request in requests(ids):
            answer = await client.ask(key, version, request)
            assert not tells(request, encode(answer, version)), key
            found.setdefault(key, set()).update(codes_of(answer))
        assert state_of(context) == before
        for key, codes in found.items():
            table = {need.denied for need in REQUIRED_RIGHTS[key] if isinstance(need.denied, ErrorCode)}
            assert codes <= table | {ErrorCode.NONE}, key
            # Each producer gets an id; an answer without rows has no codes.
            assert codes & table or key is ApiKey.INIT_PRODUCER_ID or not table or not codes, key

    play(scene)


def test_a_token_to_describe_changes_nothing() -> None:
    """Every API and form of request, for all names."""

    async def scene(context: Any, root: LoginDialogue, ids: dict[str, bytes]) -> None:
        before, client = state_of(context), LoginDialogue(context)
        narrow = token_of(context, operations("describe", "describe_configs"))
        assert (await client.plain("token", narrow)).error_code == 0
        for key, version, request in requests(ids):
            await client.ask(key, version, request)
        assert state_of(context) == before

    play(scene)


def test_a_token_without_caveats_does_what_a_narrow_one_does_not() -> None:
    """The requests are such that something changes."""

    async def scene(context: Any, root: LoginDialogue, ids: dict[str, bytes]) -> None:
        before, client = state_of(context), LoginDialogue(context)
        assert (await client.plain("token", token_of(context))).error_code == 0
        for key, version, request in requests(ids):
            await client.ask(key, version, request)
        assert state_of(context) != before

    play(scene)
