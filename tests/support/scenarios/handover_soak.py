"""Rounds of the hand-over, one after another: `python -m support.scenarios.handover_soak --rounds 200`, or a seed."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from support.peers.handover_driver import Driver
from support.peers.restarts import MortalBroker
from support.scenarios.handover_round import Round, build_plan

#: Of brokers: a round's group may have any session.
SESSIONS: Final = {
    "group.consumer.min.session.timeout.ms": 2_000,
    "group.consumer.max.session.timeout.ms": 600_000,
    "group.consumer.heartbeat.interval.ms": 1_000,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.min.session.timeout.ms": 2_000,
}


@contextmanager
def two_drivers(folder: Path) -> Iterator[tuple[Driver, Driver]]:
    """They start at the same time, and are asked by one round after another."""
    with ExitStack() as stack:
        drivers = Driver(folder / "one.log"), Driver(folder / "two.log")
        for driver in drivers:
            stack.callback(driver.close)
            driver.launch()
        yield drivers


def patient_broker(folder: Path) -> MortalBroker:
    """Groups may wait for their members for longer, and for shorter, than by default."""
    return MortalBroker(folder / "broker", SESSIONS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Play; 0 if every law held in every round."""
    parser = argparse.ArgumentParser(prog="python -m support.scenarios.handover_soak")
    parser.add_argument("seed", type=int, nargs="?", default=0, help="of the first round")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--verbose", action="store_true", help="the story of those that held, too")
    options = parser.parse_args(arguments)
    failed = []
    with tempfile.TemporaryDirectory(prefix="handover-") as place:
        folder = Path(place)
        with patient_broker(folder) as broker, two_drivers(folder) as drivers:
            for seed in range(options.seed, options.seed + options.rounds):
                began_s = time.monotonic()
                plan = build_plan(seed)
                (folder / str(seed)).mkdir()
                game = Round(plan, drivers, broker, folder / str(seed))
                try:
                    game.run()
                except Exception:
                    failed.append(seed)
                    traceback.print_exc()
                word = "failed" if failed[-1:] == [seed] else "held"
                took = f"{time.monotonic() - began_s:.0f} s"
                print(f"seed {seed} {word} ({took}): {plan.protocol}, {', '.join(plan.events)}", flush=True)
                if options.verbose:
                    print(*game.story, sep="\n", flush=True)
    print(f"{options.rounds - len(failed)} of {options.rounds} rounds held", *(f"; seeds {failed}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
