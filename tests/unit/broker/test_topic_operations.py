"""Topics that are made beside the loop: in which order, how many at once, and who is told what."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from kohort.broker.options.settings import BrokerSettings
from kohort.broker.topics.metadata import Cluster
from kohort.broker.topics.topic_operations import CHANGES_PER_TURN, Outcome, Wanted
from kohort.errors import ErrorCode, Refused
from kohort.storage.files.fs import DiskFailedError
from kohort.storage.store import Store
from kohort.testing.disks import MemoryFileSystem


class Gated(MemoryFileSystem):
    """A disk whose directories are synced only when the test lets them."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.reached = threading.Event()
        self.syncs = 0

    def sync_directory(self, path: str) -> None:
        self.syncs += 1
        self.reached.set()
        assert self.gate.wait(10)
        super().sync_directory(path)


class Topics:
    """A cluster on a disk, on a running loop."""

    def __init__(self, fs: MemoryFileSystem) -> None:
        self.fs = fs
        self.store = Store.open("/data", fs=fs)
        self.cluster = Cluster(self.store, BrokerSettings.of({}))
        self.images: list[list[str]] = []
        self.cluster.on_change = lambda _: self.images.append(sorted(self.cluster.topics))
        #: (what was asked for, what became of it), in the order of the answers.
        self.told: list[tuple[str, ErrorCode | str | None]] = []
        self.failure: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self.cluster.work.begin(
            asyncio.get_running_loop(), is_beside=not fs.volatile, on_failure=self.failure.set_result
        )

    def creation(self, name: str, partitions: int = 1) -> Wanted:
        return self.cluster.creation(name, lambda: (partitions, {}), self.note(name))

    def deletion(self, name: str) -> Wanted:
        return self.cluster.deletion(self.cluster.topics[name], lambda: None, self.note(f"-{name}"))

    def growth(self, name: str, total: int) -> Wanted:
        return self.cluster.growth(name, total, lambda _: None, self.note(f"+{name}"))

    def note(self, what: str) -> Callable[[Outcome], None]:
        def done(why: Outcome) -> None:
            said = why.code if isinstance(why, Refused) else why and str(why)
            self.told.append((what, said))

        return done

    async def ask(self, *wanted: Wanted) -> None:
        self.cluster.work.ask(wanted)
        await self.cluster.work.drain()

    def folders(self) -> list[str]:
        return [name for name in self.fs.list_directory("/data") if "-" in name]


def play(fs: MemoryFileSystem, scene: Callable[[Topics], Awaitable[None]]) -> Topics:
    """Run a scene to its end."""

    async def run() -> Topics:
        topics = Topics(fs)
        try:
            await asyncio.wait_for(scene(topics), 10)
        finally:
            topics.cluster.work.stop()
        return topics

    return asyncio.run(run())


def test_nothing_waits_for_the_disk_but_who_asked() -> None:
    """A topic is shown when it is durable, and not before."""
    fs = Gated()

    async def scene(topics: Topics) -> None:
        fs.gate.clear()
        fs.reached.clear()
        topics.cluster.work.ask([topics.creation("orders", 3)])
        await asyncio.to_thread(fs.reached.wait, 10)
        assert (topics.told, dict(topics.cluster.topics), topics.images) == ([], {}, [])
        fs.gate.set()
        await topics.cluster.work.drain()
        assert topics.told == [("orders", None)]
        assert topics.images == [["orders"]]
        assert len(topics.cluster.topics["orders"].partitions) == 3

    play(fs, scene)


def test_many_topics_are_one_change_with_one_sync_and_one_image() -> None:
    fs = Gated()

    async def scene(topics: Topics) -> None:
        fs.syncs = 0
        await topics.ask(*(topics.creation(f"t{number}", 2) for number in range(50)))
        assert fs.syncs == 1
        assert topics.images == [sorted(f"t{number}" for number in range(50))]

    play(fs, scene)


def test_the_second_of_two_that_want_a_name_is_told_what_the_first_did() -> None:
    async def scene(topics: Topics) -> None:
        await topics.ask(
            topics.creation("orders"), topics.creation("orders", 5), topics.creation("a.b"), topics.creation("a_b")
        )
        assert topics.told == [
            ("orders", None),
            ("orders", ErrorCode.TOPIC_ALREADY_EXISTS),
            ("a.b", None),
            ("a_b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ]
        assert len(topics.cluster.topics["orders"].partitions) == 1

    play(MemoryFileSystem(), scene)


def test_what_the_disk_refuses_leaves_nothing_and_does_not_hold_up_the_others() -> None:
    """The folders of a topic that does not fit are gone; a later request of its name is its own."""
    fs = MemoryFileSystem()

    async def scene(topics: Topics) -> None:
        fs.space_left = 60
        await topics.ask(topics.creation("large", 9))
        fs.space_left = None
        await topics.ask(topics.creation("large"), topics.creation("small"))
        assert topics.told[0][0] == "large" and "fit" in str(topics.told[0][1])
        assert topics.told[1:] == [("large", None), ("small", None)]
        assert topics.folders() == ["large-0", "small-0"]

    store = play(fs, scene).store
    store.close()
    assert sorted(Store.open("/data", fs=fs).topics) == ["large", "small"]


def test_a_folder_in_the_way_of_one_topic_is_left_alone_and_refuses_that_topic_only() -> None:
    fs = MemoryFileSystem()

    async def scene(topics: Topics) -> None:
        fs.make_directory("/data/orders-1")
        fs.open("/data/orders-1/thesis.tex", create=True).write(0, b"precious")
        await topics.ask(topics.creation("orders", 2), topics.creation("flights"))
        assert [(name, bool(why)) for name, why in topics.told] == [("orders", True), ("flights", False)]
        assert topics.folders() == ["flights-0", "orders-1"]
        assert fs.open("/data/orders-1/thesis.tex").size() == 8

    play(fs, scene)


def test_changes_of_one_topic_follow_each_other() -> None:
    async def scene(topics: Topics) -> None:
        await topics.ask(topics.creation("orders"), topics.growth("orders", 3), topics.growth("orders", 2))
        await topics.ask(topics.deletion("orders"), topics.creation("orders", 2), topics.creation("other"))
        assert topics.told == [
            ("orders", None),
            ("+orders", None),
            ("+orders", ErrorCode.INVALID_PARTITIONS),
            ("-orders", None),
            ("orders", None),
            ("other", None),
        ]
        assert topics.folders() == ["orders-0", "orders-1", "other-0"]

    play(MemoryFileSystem(), scene)


def test_a_topic_is_deleted_once_and_not_in_place_of_one_that_has_its_name() -> None:
    async def scene(topics: Topics) -> None:
        await topics.ask(topics.creation("orders"))
        twice = [topics.deletion("orders"), topics.deletion("orders")]
        await topics.ask(twice[0], topics.creation("orders"), twice[1])
        assert topics.told[1:] == [
            ("-orders", None),
            ("orders", None),
            ("-orders", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert topics.folders() == ["orders-0"]

    play(MemoryFileSystem(), scene)


def test_folders_of_a_large_topic_are_removed_after_it_is_gone() -> None:
    async def scene(topics: Topics) -> None:
        await topics.ask(topics.creation("orders", 250))
        await topics.ask(topics.deletion("orders"))
        assert topics.folders() == []

    play(MemoryFileSystem(), scene)


def test_a_disk_that_fails_answers_nobody_and_stops_the_broker() -> None:
    fs = MemoryFileSystem()

    async def scene(topics: Topics) -> None:
        fs.sync_error = "Input/output error"
        topics.cluster.work.ask([topics.creation("orders")])
        assert isinstance(await topics.failure, DiskFailedError)
        await topics.cluster.work.drain()
        assert topics.told == []
        assert not topics.cluster.topics

    play(fs, scene)


def test_many_topics_in_memory_leave_the_loop_to_others_between() -> None:
    async def scene(topics: Topics) -> None:
        loop, turns = asyncio.get_running_loop(), [0]

        def turn() -> None:
            turns[0] += 1
            if len(topics.told) < 4 * CHANGES_PER_TURN:
                loop.call_soon(turn)

        loop.call_soon(turn)
        await topics.ask(*(topics.creation(f"t{number}") for number in range(4 * CHANGES_PER_TURN)))
        assert [name for name, _ in topics.told] == [f"t{number}" for number in range(4 * CHANGES_PER_TURN)]
        assert turns[0] >= 3

    play(MemoryFileSystem(volatile=True), scene)


def test_what_is_asked_for_after_the_end_is_done_at_once() -> None:
    """As before the beginning: a broker that stops writes its last rows."""
    topics = play(MemoryFileSystem(), lambda topics: topics.ask(topics.creation("orders")))
    topics.cluster.work.ask([topics.creation("last")])
    assert topics.told[-1] == ("last", None)


def test_a_change_that_is_refused_is_told_in_its_place() -> None:
    def plan() -> Any:
        raise Refused(ErrorCode.POLICY_VIOLATION, "no")

    async def scene(topics: Topics) -> None:
        await topics.ask(Wanted("x", plan, topics.note("x")), topics.creation("orders"))
        assert topics.told == [("x", ErrorCode.POLICY_VIOLATION), ("orders", None)]

    play(MemoryFileSystem(), scene)
