"""Stock clients with capability tokens: how they log in, how their sessions go on, and what each meets at a limit.

`make soak ONLY=capabilities` tries sessions and limits, for seconds each; the table of the latter is on the page of
capabilities.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from kohort.capabilities import byte_rate, label, operations, partitions, peers
from kohort.errors import ErrorCode
from kohort.wire.registry import ApiKey
from support.depth import IS_SOAK
from support.dialogues.broker_wire import RawClient, make
from support.scenarios.token_clients import BEARER, CLIENTS, PLAIN, Stage
from support.waiting import until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "capabilities.md"
in_soak = pytest.mark.skipif(not IS_SOAK, reason="make soak ONLY=capabilities")
READS: Final = operations("read", "commit")
#: As long as a session is in these tests.
SESSION_S: Final = 8
#: Records beyond the first, and the bytes of each: more than a second's at that rate.
ROUNDS, SIZE, RATE = 5, 10_000, 20_000


def clients(*names: str) -> list[object]:
    """Parameters; Java needs Apache Kafka."""
    return [pytest.param(name, marks=pytest.mark.apache if name == "Java" else ()) for name in names]


@pytest.fixture
def begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Iterator[Callable[..., Stage]]:
    """`begin(connections_max_reauth_ms=8_000)` starts a broker; no line, file or row has anything of a token then."""
    stages: list[Stage] = []
    with ExitStack() as stack, caplog.at_level(logging.DEBUG, "kohort"):

        def start(**config: object) -> Stage:
            stages.append(Stage(stack, tmp_path, monkeypatch, **config))
            return stages[-1]

        yield start
        texts = [repr(stage.rows()) for stage in stages]
    texts += [record.getMessage() for record in caplog.records if record.name.startswith("kohort")]
    # Files of the broker that hold a journal, a log or a catalog; none of them is a place for tokens.
    texts += [each.read_bytes().decode("latin-1") for each in tmp_path.rglob("*") if each.is_file()]
    for token in {token for stage in stages for token in stage.tokens}:
        assert not any(token[-40:] in text for text in texts)


@pytest.mark.parametrize("client", clients("librdkafka", "kafka-python", "aiokafka"))
def test_client_logs_in_by_a_token_that_its_provider_makes(client: str, begin: Callable[..., Stage]) -> None:
    """OAUTHBEARER, with the token in place of a JWT."""
    stage = begin()
    reader = stage.start(client, stage.provider(READS, lease_s=3_600), mechanism=BEARER)
    stage.send()
    stage.wait(0, 1)
    assert reader.errors == []


def test_token_for_one_address_is_refused_from_another_one(begin: Callable[..., Stage]) -> None:
    """A stolen one, at sockets."""
    stage = begin()
    token = stage.provider(READS, peers("127.0.0.1"))()
    port = int(stage.address.rpartition(":")[2])
    told = {}
    for address in ("127.0.0.1", "127.0.0.2"):
        with RawClient(port, address) as client:
            client.ask(ApiKey.SASL_HANDSHAKE, 1, make(ApiKey.SASL_HANDSHAKE, mechanism=PLAIN))
            words = make(ApiKey.SASL_AUTHENTICATE, auth_bytes=f"\0token\0{token}".encode())
            answer = client.ask(ApiKey.SASL_AUTHENTICATE, 2, words)
            told[address] = answer.error_code, answer.error_message
            assert answer.error_code == ErrorCode.NONE or client.is_closed_by_broker()
    refused = "Authentication failed: the caveat peers of the token refuses this client"
    assert told["127.0.0.1"] == (ErrorCode.NONE, "")
    assert told["127.0.0.2"] == (ErrorCode.SASL_AUTHENTICATION_FAILED, refused)


@in_soak
@pytest.mark.parametrize("mechanism", [PLAIN, BEARER])
@pytest.mark.parametrize("client", clients(*CLIENTS))
def test_client_reads_on_when_its_session_is_over(client: str, mechanism: str, begin: Callable[..., Stage]) -> None:
    """KIP-368: by a later login on the same connection, and aiokafka by another connection."""
    if client == "Java" and mechanism == BEARER:
        pytest.skip("its process reads a token from a file alone")
    stage = begin(**({"connections_max_reauth_ms": SESSION_S * 1000} if mechanism == PLAIN else {}))
    lease_s = SESSION_S if mechanism == BEARER else 3_600
    reader = stage.start(client, stage.provider(READS, lease_s=lease_s), mechanism=mechanism, lease_s=SESSION_S)
    stage.send()
    stage.wait(0, 1)
    open_before = set(stage.logins)

    def has_gone_on() -> bool:
        if client == "aiokafka":
            return len(stage.logins.keys() - open_before) >= 2
        return max(stage.logins.values()) >= 3

    def read_on() -> None:
        stage.send()
        stage.wait(0, 1)

    until(has_gone_on, what=lambda: f"{dict(stage.logins)}", step=read_on)
    read_on()
    assert reader.errors == []
    if client == "aiokafka":
        assert max(stage.logins.values()) == 1


def throttled(stage: Stage, client: str) -> None:
    stage.start(client, stage.provider(READS, byte_rate(RATE)))
    stage.send()
    stage.wait(0, 1)
    began_s = time.monotonic()
    for _ in range(ROUNDS):
        stage.send(SIZE)
    stage.wait(0, 1)
    assert time.monotonic() - began_s > 1


def refused_partition(stage: Stage, client: str) -> None:
    reader = stage.start(client, stage.provider(READS, partitions({"t": [1]})))
    stage.send()
    if client == "librdkafka":
        # It begins at an offset. The others look for both beginnings at once, and get no further.
        stage.wait(1)
        until(lambda: reader.errors, what="librdkafka is refused")
    elif client == "aiokafka":
        until(lambda: stage.lookups.total() >= 3, what="it looks again and again")
    else:
        until(lambda: reader.errors, what=f"{client} is refused")
    assert reader.read.keys() == ({1} if client == "librdkafka" else set())


def revoked(stage: Stage, client: str) -> None:
    stage.start(client, stage.provider(READS, label("gone")))
    stage.send()
    stage.wait(0, 1)
    # Its fetch waits.
    stage.revoke("gone")
    ended(stage, client)


def lease_is_over(stage: Stage, client: str) -> None:
    # A Java takes long to start.
    stage.start(client, stage.provider(READS, lease_s=25 if client == "Java" else 4))
    stage.send()
    stage.wait(0, 1)
    ended(stage, client)


#: What a client tells its application when it is refused: librdkafka always, Java at times, the others nothing.
TELLS: Final = {"librdkafka": {"_AUTHENTICATION", "_ALL_BROKERS_DOWN"}, "Java": {"SaslAuthenticationException"}}


def ended(stage: Stage, client: str) -> None:
    """The client comes again and is refused, and nothing more is read."""
    reader, connections = stage.reader, len(stage.logins)
    assert reader is not None

    def is_refused() -> bool:
        assert reader is not None
        told = TELLS.get(client, set()) <= set(reader.errors)
        return (told and client in TELLS) or (client != "librdkafka" and len(stage.logins) >= connections + 3)

    until(
        is_refused,
        what=lambda: f"{client} is refused: {len(stage.logins)} logins, {reader.errors}",
    )
    read, connections = sum(reader.read.values()), len(stage.logins)
    stage.send()
    if not reader.errors or client == "librdkafka":
        until(lambda: len(stage.logins) > connections, what="it comes again")
    assert sum(reader.read.values()) == read


LIMITS: Final[Mapping[str, Callable[[Stage, str], None]]] = {
    "`byte_rate`": throttled,
    "a partition that `partitions` leaves out": refused_partition,
    "revoked while a fetch waits": revoked,
    "the lease is over, by PLAIN": lease_is_over,
}


def table() -> dict[str, dict[str, str]]:
    """The rows of the page: limit -> client -> the words for the application's error."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.read_text().splitlines()
        if line.startswith("|")
    ]
    head = next(row for row in rows if row[1:] == list(CLIENTS))
    return {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in rows if row[0] in LIMITS}


def test_page_has_every_limit() -> None:
    assert table().keys() == LIMITS.keys()


@in_soak
@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("client", clients(*CLIENTS))
def test_limit_is_told_as_the_page_says(client: str, limit: str, begin: Callable[..., Stage]) -> None:
    stage = begin()
    LIMITS[limit](stage, client)
    assert stage.reader is not None
    stage.reader.close()
    told, cell = set(stage.reader.errors), table()[limit][client]
    assert told == set(re.findall(r"`(\w+)`", cell)) or (not told and cell.endswith("nothing"))
