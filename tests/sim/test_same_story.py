"""A seed says everything: its story is the same alone and after others, at any pace, in any order of sets."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import time
from random import Random

import pytest

from kohort.simulation.clients.client_world import ClientWorld
from kohort.simulation.clients.network import VirtualLoop, run_virtually
from kohort.simulation.seed import main

#: Of each kind of world one; that of the clients sends its records in more batches on a slow machine.
WORLDS = {"clients": 56, "queries": 5}
CLOCKS = (
    time.time,
    time.time_ns,
    time.monotonic,
    time.monotonic_ns,
    time.perf_counter,
    time.perf_counter_ns,
    time.clock_gettime_ns,
)


@pytest.mark.parametrize(("world", "seed"), WORLDS.items())
def test_a_seed_tells_the_same_story_alone_and_after_others(
    world: str, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing depends on addresses, the order of sets of strings, or what was played before."""
    environment = {**os.environ, "PYTHONHASHSEED": "3", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "kohort.simulation.seed", str(seed), "--world", world, "--verbose"]
    alone = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    assert main([str(seed - 1), "--world", world, "--count", "2", "--verbose"]) == 0
    before, told = capsys.readouterr().out.split(f"seed {seed - 1}: every law held", 1)
    assert before
    assert told.partition("\n")[2].startswith(alone.stdout)


def test_no_module_keeps_a_clock_of_the_machine() -> None:
    """A record's timestamp takes more or fewer bytes, and so does its batch: on a slow machine it was another story."""

    async def look(_: VirtualLoop) -> list[str]:
        return [
            f"{name}.{attribute}"
            for name, module in sorted(sys.modules.items())
            if name.startswith("kohort.")
            for attribute, value in vars(module).items()
            if any(value is clock for clock in CLOCKS)
        ]

    assert ClientWorld(1).run().records
    assert run_virtually(look, Random(1)) == []


def test_an_error_that_nobody_looks_at_is_told_before_the_world_ends() -> None:
    """In a circle it would wait for the collector, which runs when all that was made before lets it."""
    told: list[str] = []

    async def fail() -> None:
        raise ValueError("nobody looks")

    async def forget(loop: VirtualLoop) -> None:
        loop.set_exception_handler(lambda _, context: told.append(str(context["message"])))
        circle: list[object] = [loop.create_task(fail())]
        circle.append(circle)
        await asyncio.sleep(1)

    run_virtually(forget, Random(1))
    assert told == ["Task exception was never retrieved"]
    assert gc.isenabled()
