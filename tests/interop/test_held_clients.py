"""Every client in every protocol while its heartbeats are held, members and broker in processes of their own.

Each run has a few fields of the table; `make soak ONLY=held-clients` has all of them.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from itertools import product
from pathlib import Path
from typing import Final

import pytest

from kohort import Broker
from kohort.broker import context
from kohort.simulation.clients.program_world import HoldsFor
from support.depth import IS_SOAK
from support.peers.lossy_proxy import LossyProxy
from support.ports import quiet_port
from support.scenarios.held_scenarios import (
    BRIEF_CUTS,
    CALM,
    CLIENTS,
    CUTS,
    ROUGH,
    SHARES,
    SHORT_SESSIONS,
    UNABLE,
    Case,
    play,
)

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

#: What each run has: it takes little.
DAILY: Final = [Case("librdkafka, consumer", "close"), Case("kohort, consumer", "leave")]


def fields() -> list[object]:
    """Of the table, all of it in `make soak`; only the consumer protocol tells an interval."""
    cases = [Case(*field) for field in product(CLIENTS, (*CALM, *ROUGH)) if field not in UNABLE]
    cases += [Case(client, event) for client in CLIENTS if client.endswith(", consumer") for event in SHARES]
    wanted = cases if IS_SOAK else DAILY
    apache = pytest.mark.apache
    return [pytest.param(case, id=str(case), marks=apache if "Java" in case.client else ()) for case in wanted]


@pytest.mark.parametrize("case", fields())
def test_held_members_go_on(case: Case, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """H1, G3: nobody is given up wrongly, nobody logs a time-out, everything is owned once and committed."""
    config: dict[str, object] = dict(SHORT_SESSIONS) if case.event in ROUGH else {}
    with ExitStack() as stack:
        proxy = stack.enter_context(LossyProxy()) if case.event in (*CUTS, *BRIEF_CUTS) else None
        if proxy is not None:
            config["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{proxy.port}"
        if case.event in SHARES:
            monkeypatch.setattr(context, "DelayedHeartbeats", partial(HoldsFor, share=SHARES[case.event]))
            broker = Broker()
        else:
            broker = Broker(process=True, data_dir=tmp_path, port=quiet_port(), config=config)
        stack.enter_context(broker)
        if proxy is not None:
            proxy.target_port = broker.port
        play(case, broker, stack, proxy=proxy)
