"""`kohort.spark.follow` with a broker and events of Spark's listener; real ones: tests/spark/test_follow.py."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from pyspark.sql.streaming.listener import QueryStartedEvent

import kohort
from kohort import TopicPartition
from kohort.errors import ConfigError, StateError
from kohort.spark import Follower, follow
from support.builders.spark_progress import ours, progress, progressed, sparks, terminated
from support.ports import quiet_port
from support.scenarios.client_scenarios import BROKER_CONFIG
from support.waiting import until


class Session:
    """Spark's session, as far as it is asked: it has queries that are active, and listeners."""

    def __init__(self) -> None:
        self.streams = self
        self.active: list[SimpleNamespace] = []
        self.listeners: list[Follower] = []

    def addListener(self, listener: Follower) -> None:
        self.listeners.append(listener)

    def removeListener(self, listener: Follower) -> None:
        self.listeners.remove(listener)


@pytest.fixture
def session() -> Session:
    return Session()


@pytest.fixture
def start(session: Session, address: str) -> Iterator[Callable[..., Follower]]:
    """`start("reports")` follows the session's queries."""
    started: list[Follower] = []

    def build(group: Any, **options: Any) -> Follower:
        started.append(follow(session, group, **{"bootstrap_servers": address, **options}))  # type: ignore[arg-type]
        return started[-1]

    yield build
    session.active.clear()
    for follower in started:
        follower.onQueryTerminated(terminated())
        follower.close(0)


def offsets(admin: kohort.Admin, group: str) -> dict[str, int | None]:
    """What a lag tool shows."""
    return {f"{row.topic}-{row.partition}": row.committed for row in admin.group_offsets(group)}


def seen(follower: Follower, offset: int) -> Callable[[], bool]:
    """Whether it has committed that offset somewhere."""
    return lambda: any(offset in each.values() for each in follower.committed.values())


def test_offsets_are_in_the_group_where_lag_tools_look(
    start: Callable[..., Follower], admin: kohort.Admin, topic: Callable[[int], str], fill: Callable[..., None]
) -> None:
    """SPARK-27549: with every batch, and nothing between."""
    name = topic(2)
    fill(name, {0: 10, 1: 10})
    follower = start("of-a-query")
    follower.onQueryProgress(progressed(sparks({0: 7, 1: 3}, topic=name)))
    until(seen(follower, 7), what="the end of the first batch")
    assert offsets(admin, "of-a-query") == {f"{name}-0": 7, f"{name}-1": 3}
    assert [row.lag for row in admin.group_offsets("of-a-query")] == [3, 7]
    follower.onQueryProgress(progressed(sparks({0: 9, 1: 3}, topic=name), batch=1))
    until(seen(follower, 9), what="the end of the second")
    assert offsets(admin, "of-a-query") == {f"{name}-0": 9, f"{name}-1": 3}
    assert follower.trouble == {}


def test_group_that_is_ahead_stays_where_it_is(
    start: Callable[..., Follower], admin: kohort.Admin, topic: Callable[[int], str], address: str
) -> None:
    """A checkpoint was put back, or the group was moved by hand."""
    name = topic(1)
    with kohort.Consumer(bootstrap_servers=address, group_id="ahead", enable_auto_commit=False) as consumer:
        consumer.commit({TopicPartition(name, 0): 8})
    follower = start("ahead")
    follower.onQueryProgress(progressed(sparks({0: 5}, topic=name)))
    until(seen(follower, 8), what="the group was asked")
    follower.onQueryProgress(progressed(sparks({0: 9}, topic=name)))
    until(seen(follower, 9), what="the query has come by")
    assert offsets(admin, "ahead") == {f"{name}-0": 9}


def test_queries_by_name_have_groups_of_their_own(
    start: Callable[..., Follower], admin: kohort.Admin, topic: Callable[[int], str]
) -> None:
    """Others are not followed, nor is a query that is a member of a group itself."""
    name = topic(1)
    follower = start({"departures": "g-departures", "arrivals": "g-arrivals"})
    for number, query in enumerate(["departures", None, "others", "arrivals"], 1):
        follower.onQueryProgress(progressed(sparks({0: number}, topic=name), query=number, run=number, name=query))
    follower.onQueryProgress(progressed(ours({0: 99}, {0: 99}, name="q-1"), run=9))
    until(seen(follower, 4), what="the last of them")
    until(seen(follower, 1), what="and the first")
    assert follower.committed == {
        "g-arrivals": {TopicPartition(name, 0): 4},
        "g-departures": {TopicPartition(name, 0): 1},
    }
    assert [group.group_id for group in admin.list_groups() if group.group_id.startswith("g-")] == [
        "g-arrivals",
        "g-departures",
    ]


def test_group_with_members_is_refused(
    start: Callable[..., Follower], session: Session, topic: Callable[[int], str], address: str
) -> None:
    """Their offsets would be somebody else's from one batch to the next; other groups are not asked for then."""
    name = topic(1)
    with kohort.Consumer(name, bootstrap_servers=address, group_id="taken") as member:
        until(member.assignment, what="the member", step=lambda: member.poll(0.2))
        with pytest.raises(StateError, match="group taken has members, whose offsets they are: stop them, or follow"):
            start({"a": "free", "b": "taken"})
    assert session.listeners == []


@pytest.mark.large
def test_member_that_joins_later_is_said_once_and_outwaited(
    start: Callable[..., Follower], topic: Callable[[int], str], address: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The query runs on; when the member has left, the offsets are there."""
    name = topic(1)
    follower = start("joined")
    follower.onQueryProgress(progressed(sparks({0: 1}, topic=name)))
    until(seen(follower, 1), what="the first batch")
    with kohort.Consumer(name, bootstrap_servers=address, group_id="joined") as member:
        until(member.assignment, what="the member", step=lambda: member.poll(0.2))
        with caplog.at_level(logging.WARNING):
            follower.onQueryProgress(progressed(sparks({0: 2}, topic=name), batch=1))
            until(lambda: follower.trouble, what="the refusal")
        assert isinstance(follower.trouble["joined"], StateError)
    until(seen(follower, 2), what="the member has left")
    assert [record for record in caplog.messages if "has members" in record] == [
        "group=joined offsets are committed later: group joined has members, whose offsets they are: stop them, or "
        "follow queries under a group of their own"
    ]
    assert follower.trouble == {}


@pytest.mark.large
def test_broker_that_is_away_is_caught_up_with(
    start: Callable[..., Follower], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """At the start, too: the job has begun before its broker."""
    with kohort.Broker(data_dir=tmp_path, port=quiet_port(), config=BROKER_CONFIG) as broker:
        address = broker.bootstrap_servers
        with kohort.Admin(bootstrap_servers=address) as admin:
            admin.create_topic("orders", 1)
    with caplog.at_level(logging.WARNING):
        follower = start("late", bootstrap_servers=address)
    assert "group=late offsets are committed later: no broker can be reached" in caplog.text
    follower.onQueryProgress(progressed(sparks({0: 3})))
    until(lambda: follower.trouble, what="the first attempt")
    follower.onQueryProgress(progressed(sparks({0: 4}), batch=1))
    host, port = address.split(":")
    with kohort.Broker(data_dir=tmp_path, host=host, port=int(port), config=BROKER_CONFIG):
        until(seen(follower, 4), what="the broker is back")
        with kohort.Admin(bootstrap_servers=address) as admin:
            assert offsets(admin, "late") == {"orders-0": 4}


@pytest.mark.large
def test_deleted_topic_is_left_out(
    start: Callable[..., Follower], admin: kohort.Admin, topic: Callable[[int], str], caplog: pytest.LogCaptureFixture
) -> None:
    """No broker answers for it; the others go on."""
    name = topic(1)
    follower = start("remains")
    with caplog.at_level(logging.WARNING):
        follower.onQueryProgress(progressed(sparks({0: 3}, topic=name), sparks({0: 9}, topic="gone")))
        until(lambda: "offsets of topics that do not exist: gone" in caplog.text, what="it is said")
    until(seen(follower, 3), what="the other topic")
    assert offsets(admin, "remains") == {f"{name}-0": 3}


def test_close_waits_for_what_comes_behind_the_last_batch(
    start: Callable[..., Follower], session: Session, admin: kohort.Admin, topic: Callable[[int], str]
) -> None:
    """Spark tells of it some time later; of a query that runs on it is asked."""
    name = topic(2)
    follower = start("to-the-end")
    follower.onQueryStarted(QueryStartedEvent(UUID(int=1), UUID(int=1), None, "now", set()))
    session.active.append(
        SimpleNamespace(runId=UUID(int=2), lastProgress=progress(sparks({1: 6}, topic=name), query=2, run=2))
    )
    follower.onQueryStarted(QueryStartedEvent(UUID(int=2), UUID(int=2), None, "now", set()))
    asked: list[bool] = []

    class Late(list):  # type: ignore[type-arg]
        def __iter__(self) -> Iterator[Any]:
            asked.append(True)
            if len(asked) == 3:
                follower.onQueryProgress(progressed(sparks({0: 5}, topic=name)))
                follower.onQueryTerminated(terminated())
            return super().__iter__()

    session.active = Late(session.active)
    follower.close()
    assert offsets(admin, "to-the-end") == {f"{name}-0": 5, f"{name}-1": 6}
    assert session.listeners == []
    follower.close()


@pytest.mark.process
def test_program_that_does_not_close_it_commits_at_its_end(
    admin: kohort.Admin, topic: Callable[[int], str], address: str
) -> None:
    """`awaitTermination` is the last line of most jobs."""
    name = topic(1)
    here = Path(__file__).resolve()
    code = (
        f"import sys; sys.path[:0] = [{str(here.parents[2])!r}, {str(here.parent)!r}]\n"
        "from types import SimpleNamespace\n"
        "import kohort.spark\n"
        "from support.builders.spark_progress import progressed, sparks\n"
        "nothing = lambda listener: None\n"
        "session = SimpleNamespace(streams=SimpleNamespace(active=[], addListener=nothing, removeListener=nothing))\n"
        f"follower = kohort.spark.follow(session, 'at-exit', bootstrap_servers={address!r})\n"
        f"follower.onQueryProgress(progressed(sparks({{0: 5}}, topic={name!r})))\n"
        "from support.builders.spark_progress import terminated\n"
        "follower.onQueryTerminated(terminated())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert offsets(admin, "at-exit") == {f"{name}-0": 5}


@pytest.mark.parametrize(
    ("group", "options", "error", "sentence"),
    [
        (7, {}, TypeError, r"group_id cannot be 7: a name, or \{query name: group\}, is expected"),
        ("", {}, ConfigError, "group_id is empty: the name of a group is expected"),
        ({}, {}, ConfigError, "group_id names no group"),
        ({"q": 7}, {}, TypeError, "group_id cannot have 'q': 7"),
        ("g", {"bootstrap_server": "a:1"}, ConfigError, "did you mean bootstrap_servers"),
        ("g", {"bootstrap_servers": "nonsense:port"}, ConfigError, "is not host:port"),
    ],
)
def test_wrong_arguments_are_refused(
    group: object, options: dict[str, str], error: type[Exception], sentence: str, session: Session
) -> None:
    with pytest.raises(error, match=sentence):
        follow(session, group, **options)  # type: ignore[arg-type]
    assert session.listeners == []
    with pytest.raises(TypeError, match="a Spark session is expected, not str"):
        follow("spark", "g")  # type: ignore[arg-type]
