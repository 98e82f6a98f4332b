"""Work beside the loop: what is left of it."""

from __future__ import annotations

import asyncio
import gc
from weakref import ref

from kohort.broker.scheduling import BlockingWork


class Unfolded:
    """What work has while it is under way."""


def test_nothing_of_work_that_fails_is_kept() -> None:
    """A hundred batches of 28 KB that unfold to more than is allowed kept 64 MB each."""
    seen: list[ref[Unfolded]] = []
    reports: list[str] = []

    def unfold() -> None:
        unfolded = Unfolded()
        seen.append(ref(unfolded))
        raise ValueError("too much")

    async def dialogue() -> None:
        loop = asyncio.get_running_loop()
        is_done = asyncio.Event()

        def take(result: object) -> None:
            reports.append(str(result))
            is_done.set()

        threads = BlockingWork(loop, threads=1, name="kohort-test")
        threads.submit(unfold, take)
        await is_done.wait()
        threads.stop()

    gc.disable()
    try:
        asyncio.run(dialogue())
        assert [each() for each in seen] == [None]
    finally:
        gc.enable()
    assert reports == ["too much"]
