"""A member that is cut off from its coordinator, and not from the leader of its partition: what it reads beside the
member that has it by then.

Two members share a topic of two partitions, which all groups read, session 6 s; a proxy in front of the broker passes
everything but what the first says of its membership (ConsumerGroupHeartbeat; Heartbeat, JoinGroup, SyncGroup), or what
it is answered. Counted are records of its partition that it is handed after the other one was told that it has it. That
other one is always ours. Peers: confluent-kafka, Java, kafka-python and aiokafka, at kohort's broker, there with a
capability token each as well, and at Apache Kafka.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from kohort import Admin, Consumer, Producer
from kohort.capabilities import mint, read_keys
from kohort.wire.registry import ApiKey
from load import RawConnection
from report import APACHE_KAFKA, Row, Table, compare
from requests import settle_alone
from servers import KohortServer, apache_server

#: Of the group, and of classic members.
SESSION_MS, INTERVAL_MS = 6_000, 2_000
SHORT: Final = {
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.min.session.timeout.ms": SESSION_MS,
    "group.consumer.heartbeat.interval.ms": INTERVAL_MS,
    "group.consumer.min.heartbeat.interval.ms": INTERVAL_MS,
    "group.initial.rebalance.delay.ms": 0,
}
MEMBERSHIP: Final = frozenset({ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.HEARTBEAT, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
#: To each partition. A thousand runs of ours have fewer: that they read nothing shows with any.
RECORDS_PER_S: Final = 40
FEW_RECORDS_PER_S: Final = 4
#: How long a member is watched: until the other has its partition, at most so long, and then so long.
MOVES_WITHIN_S: Final = 16.0
WATCH_S: Final = 8.0
#: Runs of ours in all, and of each stock client over the ways in which it is cut off.
OURS: Final = 1_000
STOCK_RUNS: Final = 20
#: Runs that go at once: of ours, of other clients in Python, and of Java, where each is a process.
OURS_AT_ONCE: Final = 50
AT_ONCE: Final = 20
JAVA_AT_ONCE: Final = 5
PATIENCE_S: Final = 60.0
#: A broker whose clients log in, each with a token.
TOKENS_ALONE: Final = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required user_nobody="{secrets.token_hex(16)}";'
    ),
}
TOPIC: Final = "cutoff"
BOTH, REQUESTS, ANSWERS = "both ways", "requests are lost", "answers are lost"


class Proxy:
    """In front of a broker that tells clients the proxy's port; `cut`: client id -> what of its words is lost."""

    def __init__(self) -> None:
        self.target_port = 0
        self.port = 0
        self.cut: dict[str, str] = {}
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._ready.wait()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        try:
            broker, to_broker = await asyncio.open_connection("127.0.0.1", self.target_port)
        except OSError:
            to_client.close()
            return
        #: Correlation id -> client id, of what was said of membership and is not answered.
        said: dict[int, str] = {}
        passing = (self._pass_requests(client, to_broker, said), self._pass_answers(broker, to_client, said))
        tasks = [asyncio.ensure_future(each) for each in passing]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        to_client.close()
        to_broker.close()
        for task in tasks:
            task.cancel()

    async def _pass_requests(
        self, client: asyncio.StreamReader, to_broker: asyncio.StreamWriter, said: dict[int, str]
    ) -> None:
        async for frame in _frames(client):
            key, _, correlation_id, length = struct.unpack_from(">hhih", frame, 4)
            name = frame[14 : 14 + length].decode() if length > 0 else ""
            if key in MEMBERSHIP:
                if self.cut.get(name) in (BOTH, REQUESTS):
                    continue
                said[correlation_id] = name
            to_broker.write(frame)
            await to_broker.drain()

    async def _pass_answers(
        self, broker: asyncio.StreamReader, to_client: asyncio.StreamWriter, said: dict[int, str]
    ) -> None:
        async for frame in _frames(broker):
            name = said.pop(struct.unpack_from(">i", frame, 4)[0], None)
            if name is not None and self.cut.get(name) in (BOTH, ANSWERS):
                continue
            to_client.write(frame)
            await to_client.drain()


async def _frames(stream: asyncio.StreamReader) -> Any:
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        while True:
            head = await stream.readexactly(4)
            yield head + await stream.readexactly(struct.unpack(">i", head)[0])


# -- members ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Seen:
    """What a member was handed, and when: (time, partition) of each record."""

    records: list[tuple[float, int]] = field(default_factory=list)
    owned: set[int] = field(default_factory=set)


class PythonMember:
    """A member of `polled_members`, polled by a thread of its own."""

    def __init__(self, kind: str, address: str, group: str, topic: str, options: Mapping[str, Any]) -> None:
        self.seen = Seen()
        self._kind, self._given = kind, (address, group, topic, options)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._is_over.set()
        self._thread.join(PATIENCE_S)

    def _run(self) -> None:
        from support.peers import polled_members

        address, group, topic, options = self._given
        member = getattr(polled_members, self._kind)(address, group, topic, **options)
        seen, known = self.seen, 0
        try:
            while not self._is_over.is_set():
                # A client that is cut off may complain of that; what counts is what it hands out.
                with contextlib.suppress(Exception):
                    member.poll()
                now = time.monotonic()
                seen.records += [(now, int(value.split(b":")[0])) for value in member.values[known:]]
                known = len(member.values)
                seen.owned = set(member.owned())
        finally:
            with contextlib.suppress(Exception):
                member.close()


class OurReader:
    """kohort's, polled by a thread of its own as often as something comes."""

    def __init__(self, address: str, group: str, topic: str, options: Mapping[str, Any]) -> None:
        self.seen = Seen()
        self._is_over = threading.Event()
        options = {"auto_offset_reset": "latest", "enable_auto_commit": False, **options}
        self._consumer = Consumer(topic, bootstrap_servers=address, group_id=group, **options)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._is_over.set()
        self._thread.join(PATIENCE_S)

    def _run(self) -> None:
        seen, consumer = self.seen, self._consumer
        while not self._is_over.is_set():
            # A client that is cut off may complain of that; what counts is what it hands out.
            with contextlib.suppress(Exception):
                found = consumer.poll(0.25)
                now = time.monotonic()
                seen.records += [(now, record.partition) for record in found]
            seen.owned = {each.partition for each in consumer.assignment()}
        with contextlib.suppress(Exception):
            consumer.close(timeout=0)


class JavaReader:
    """Java's, in a process of its own, which says what it reads."""

    def __init__(self, address: str, group: str, topic: str, options: Mapping[str, Any]) -> None:
        from support.peers.java_member import JavaMember

        self.seen = Seen()
        # Nothing else goes by the connection on which words are lost: Java's consumer ends where an answer is left out.
        options = {**options, "says.reads": "true", "enable.auto.commit": "false"}
        told = {name: str(value) for name, value in options.items()}
        self._member = JavaMember(address, topic=topic, group_id=group, on_line=self._note, **told)

    def close(self) -> None:
        # It would leave its group, and wait for the answer.
        self._member.kill()

    def _note(self, line: str) -> None:
        word, *rest = line.split()
        if word == "held":
            self.seen.owned = {int(name.rpartition("-")[2]) for name in rest}
        elif word == "read":
            for place in rest:
                partition, _, count = place.partition(":")
                self.seen.records += [(time.monotonic(), int(partition))] * int(count)


_SASL: Final = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
#: What the topic had before is of no interest.
LATEST: Final = {"auto_offset_reset": "latest"}
CLASSIC: Final = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": INTERVAL_MS}
Make = Callable[[str, str, str, Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """A client and its options; `is_at_apache`: whether it is measured there, too."""

    name: str
    make: Make
    options: Mapping[str, Any]
    is_java: bool = False
    #: How the client is told a token that it logs in with.
    login: Callable[[str], Mapping[str, Any]] = lambda _: {}


def _by_sasl_names(token: str) -> Mapping[str, Any]:
    """Of librdkafka, and of ours, which takes the same."""
    return {**_SASL, "sasl_username": "token", "sasl_password": token}


def _by_plain_names(token: str) -> Mapping[str, Any]:
    """Of kafka-python and aiokafka."""
    return {**_SASL, "sasl_plain_username": "token", "sasl_plain_password": token}


def _by_jaas(token: str) -> Mapping[str, Any]:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return {**_SASL, "sasl_jaas_config": f'{module} required username="token" password="{token}";'}


def _python(kind: str) -> Make:
    return partial(PythonMember, kind)


KOHORT: Final = (
    Kind("kohort, consumer", OurReader, {"group_protocol": "consumer"}),
    Kind(
        "kohort, consumer, equal sessions",
        OurReader,
        {"group_protocol": "consumer", "session_timeout_ms": SESSION_MS},
    ),
    Kind("kohort, classic", OurReader, {"group_protocol": "classic", **CLASSIC}),
    Kind("kohort, consumer, commits", OurReader, {"group_protocol": "consumer", "enable_auto_commit": True}),
)
STOCK: Final = (
    Kind(
        "confluent-kafka, consumer",
        _python("ConfluentMember"),
        {"group_protocol": "consumer", **LATEST},
        login=_by_sasl_names,
    ),
    Kind(
        "confluent-kafka, range",
        _python("ConfluentMember"),
        {"partition_assignment_strategy": "range", **LATEST, **CLASSIC},
        login=_by_sasl_names,
    ),
    Kind("Java, consumer", JavaReader, LATEST, is_java=True, login=_by_jaas),
    Kind(
        "Java, range",
        JavaReader,
        {
            "group_protocol": "classic",
            "partition_assignment_strategy": "org.apache.kafka.clients.consumer.RangeAssignor",
            **LATEST,
            **CLASSIC,
        },
        is_java=True,
        login=_by_jaas,
    ),
    Kind("kafka-python", _python("KafkaPythonMember"), {**LATEST, **CLASSIC}, login=_by_plain_names),
    Kind("aiokafka", _python("AioMember"), {**LATEST, **CLASSIC}, login=_by_plain_names),
)


# -- a run ------------------------------------------------------------------------------------------------------------


class Stage:
    """A broker behind a proxy, a topic that gets records, and groups of two."""

    def __init__(
        self,
        stack: ExitStack,
        start: Callable[[Mapping[str, object]], Any],
        *,
        has_tokens: bool = False,
        records_per_s: int = RECORDS_PER_S,
    ) -> None:
        self._records_per_s = records_per_s
        self.proxy = Proxy()
        stack.callback(self.proxy.close)
        advertised = f"PLAINTEXT://127.0.0.1:{self.proxy.port}"
        options: Mapping[str, object] = TOKENS_ALONE if has_tokens else {}
        self.server = stack.enter_context(start({**SHORT, "advertised.listeners": advertised, **options}))
        #: The keys that tokens are minted with; `None`: nobody logs in.
        self._keys = read_keys(Path(self.server.directory) / "capability.keys") if has_tokens else None
        self.proxy.target_port = self.server.port
        self.address = f"127.0.0.1:{self.proxy.port}"
        self._is_over = threading.Event()
        if not has_tokens:
            with contextlib.closing(RawConnection(self.server.port)) as connection:
                settle_alone(connection)
        admin = stack.enter_context(Admin(bootstrap_servers=self.address, **self.login(_by_sasl_names)))
        admin.create_topic(TOPIC, partitions=2)
        self._feeder = threading.Thread(target=self._feed, daemon=True)
        self._feeder.start()
        stack.callback(self._feeder.join)
        stack.callback(self._is_over.set)

    def login(self, tell: Callable[[str], Mapping[str, Any]]) -> Mapping[str, Any]:
        """The options of a client that logs in with a token of its own, if clients log in."""
        if self._keys is None:
            return {}
        return tell(mint(self._keys, token_id=secrets.token_bytes(16)))

    def _feed(self) -> None:
        with Producer(bootstrap_servers=self.address, **self.login(_by_sasl_names)) as producer:
            number, began = 0, time.monotonic()
            while not self._is_over.wait(1 / self._records_per_s):
                # A busy machine wakes late: what is missing is made up for.
                while number < (time.monotonic() - began) * self._records_per_s:
                    number += 1
                    for partition in (0, 1):
                        producer.send(TOPIC, f"{partition}:{number}".encode(), partition=partition)

    def count(self, kind: Kind, way: str) -> float:
        """Records that one run of that client hands out beside its successor."""
        name = f"cutoff-{uuid4().hex[:12]}"
        is_classic = kind.options.get("group_protocol") == "classic" or "session_timeout_ms" in kind.options
        is_classic = is_classic and kind.options.get("group_protocol") != "consumer"
        # aiokafka knows roundrobin alone, unless it is told otherwise.
        strategies = {"partition_assignment_strategy": "range,roundrobin"}
        other = {"group_protocol": "classic", **strategies, **CLASSIC} if is_classic else {"group_protocol": "consumer"}
        with ExitStack() as stack:
            former = kind.make(self.address, name, TOPIC, {**kind.options, **self.login(kind.login), "client_id": name})
            stack.callback(former.close)
            other |= {**self.login(_by_sasl_names), "client_id": f"{name}-heir"}
            heir = OurReader(self.address, name, TOPIC, other)
            stack.callback(heir.close)
            _wait(lambda: len(former.seen.owned) == len(heir.seen.owned) == 1, f"{kind.name} shares the topic")
            _wait(lambda: bool(former.seen.records and heir.seen.records), f"{kind.name} reads")
            (mine,) = former.seen.owned
            self.proxy.cut[name] = way
            stack.callback(self.proxy.cut.pop, name)
            until = time.monotonic() + MOVES_WITHIN_S
            while mine not in heir.seen.owned and time.monotonic() < until:
                time.sleep(0.02)
            moved = time.monotonic()
            if mine in heir.seen.owned:
                time.sleep(WATCH_S)
            else:
                assert way == ANSWERS, f"{kind.name} is cut off, and keeps its partition"
            return float(sum(when >= moved and partition == mine for when, partition in former.seen.records))


def _wait(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until, f"{what}: not within {PATIENCE_S:g} s"
        time.sleep(0.05)


def _gather(
    stage: Stage, cases: Sequence[tuple[Kind, str]], at_once: int = AT_ONCE
) -> dict[tuple[str, str], list[float]]:
    found: dict[tuple[str, str], list[float]] = {}
    for is_java, most in ((False, at_once), (True, JAVA_AT_ONCE)):
        chosen = [case for case in cases if case[0].is_java is is_java]
        with ThreadPoolExecutor(most) as pool:
            for (kind, way), count in zip(chosen, pool.map(lambda case: stage.count(*case), chosen), strict=True):
                found.setdefault((kind.name, way), []).append(count)
    return found


def _cases(kinds: Sequence[Kind], ways: Sequence[str], count: int) -> list[tuple[Kind, str]]:
    """So many runs of each client, over the ways in turn."""
    return [(kind, ways[number % len(ways)]) for number in range(count) for kind in kinds]


def measure(runs: int) -> list[Table]:
    with ExitStack() as stack:
        stage = Stage(stack, KohortServer, records_per_s=FEW_RECORDS_PER_S)
        ours = _gather(stage, _cases(KOHORT, (BOTH, REQUESTS, ANSWERS), OURS // len(KOHORT)), OURS_AT_ONCE)
    with ExitStack() as stack:
        stage = Stage(stack, KohortServer)
        stock = _gather(stage, _cases(STOCK, (BOTH, REQUESTS), STOCK_RUNS))
        beside = _gather(stage, _cases((KOHORT[0], KOHORT[2]), (BOTH, REQUESTS), 2 * runs))
    with ExitStack() as stack:
        stage = Stage(stack, KohortServer, has_tokens=True)
        known = _gather(stage, _cases(STOCK, (BOTH, REQUESTS), 2 * runs))
    there: dict[tuple[str, str], list[float]] = {}
    left_out: list[str] = []
    with ExitStack() as stack:
        apache = apache_server({})
        if isinstance(apache, str):
            left_out.append(apache)
        else:
            stage = Stage(stack, apache_server)
            # There the group's session is not told: ours has the same by its own option.
            there = _gather(stage, _cases((*KOHORT[1:3], *STOCK), (BOTH,), STOCK_RUNS))
    rows = [
        _row(name, way, counts, beside[KOHORT[2 if _is_classic(name) else 0].name, way], "")
        for (name, way), counts in stock.items()
    ]
    own = [*ours.items(), *(((f"{name} with a token", way), counts) for (name, way), counts in known.items())]
    rows = [*(_own(name, way, counts) for (name, way), counts in own), *rows]
    for (name, way), counts in there.items():
        mine = there[KOHORT[2 if _is_classic(name) else 1].name, BOTH]
        rows.append(_row(name, way, counts, mine, f", at {APACHE_KAFKA}"))
    title = (
        f"Records read beside the next owner within {WATCH_S:g} s, {RECORDS_PER_S}/s, session {SESSION_MS // 1000} s"
    )
    return [Table("cutoff", title, rows, left_out)]


def _is_classic(name: str) -> bool:
    return "consumer" not in name


def _own(name: str, way: str, counts: Sequence[float]) -> Row:
    return compare(
        f"{name}: {way}", counts, [], unit="records", reach="0", peer_name="no peer", how=f"{len(counts)}, many at once"
    )


def _row(name: str, way: str, counts: Sequence[float], mine: Sequence[float], where: str) -> Row:
    return compare(
        f"{way}{where}",
        mine,
        counts,
        unit="records",
        reach="0",
        peer_name=name,
        how=f"{len(counts)}, many at once",
        less_is_better=True,
    )
