"""How long nobody is answered: the turns of the loop, and what a broker says of itself."""

from __future__ import annotations

import asyncio
import time

import pytest

import kohort
from kohort.broker.embedded import Broker
from kohort.broker.scheduling import LoopWatch, WatchedSelector
from kohort.cli.main import main
from kohort.testing.clock import VirtualClock


def test_the_longest_turn_is_kept_with_when_and_during_what() -> None:
    clock = VirtualClock(start_ms=5_000)
    watch = LoopWatch(clock)
    watch.end(1.0)
    assert (watch.turns, watch.longest_at_ms) == (0, 0)
    for began, ended, during in [(1.0, 1.25, "FETCH"), (2.0, 2.5, "METADATA"), (3.0, 3.125, "PRODUCE")]:
        watch.begin(began)
        watch.during = during
        watch.end(ended)
        clock.run_until(clock.now_ms() + 1_000)
    watch.begin(4.0)
    watch.end(4.25)
    assert (watch.turns, watch.longest_seconds, watch.longest_during, watch.longest_at_ms) == (
        4,
        0.5,
        "METADATA",
        6_000,
    )


def test_a_turn_is_what_runs_between_two_looks_at_the_sockets() -> None:
    """Waiting is none of it."""
    watch = LoopWatch()
    loop = asyncio.SelectorEventLoop(WatchedSelector(watch))

    def work() -> None:
        until = time.perf_counter() + 0.02
        while time.perf_counter() < until:
            pass

    try:
        loop.call_later(0.001, work)
        loop.run_until_complete(asyncio.wait_for(asyncio.Event().wait(), 0.1))
    except TimeoutError:
        pass
    finally:
        loop.close()
    assert watch.turns >= 2
    assert 0.02 <= watch.longest_seconds < 0.1


def test_where_nobody_sees_turns_what_is_worked_at_counts() -> None:
    watch = LoopWatch()
    watch.enter()
    watch.leave()
    assert watch.turns == 1
    WatchedSelector(watch).close()
    watch.enter()
    watch.leave()
    assert watch.turns == 1


def test_a_broker_says_how_it_is_doing(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker(config={"max.topics": 7}) as broker:
        with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("orders", 3)
            facts = admin.describe_broker()
        assert main(["broker", "status", "-b", broker.bootstrap_servers]) == 0
    assert facts["version"] == kohort.__version__
    assert (facts["node.id"], facts["address"], facts["data.dir"]) == ("1", broker.bootstrap_servers, "")
    # The coordinator's log has four.
    assert (facts["topics"], facts["topics.max"], facts["partitions"]) == ("2", "7", "7")
    assert int(facts["connections"]) >= 1
    assert int(facts["loop.turns"]) > 0 and float(facts["loop.longest.turn.ms"]) > 0
    shown = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert (shown["address"], shown["data.dir"], shown["partitions"]) == (broker.bootstrap_servers, "-", "7")
