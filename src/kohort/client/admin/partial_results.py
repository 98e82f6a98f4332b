"""What one call asks for of several things, each of which may be done or refused on its own.

Laws: what was answered for good is not asked again; nothing that was done is forgotten when the rest fails.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from kohort.client.admin.requests.admin_machine import may_pass
from kohort.client.steps import Pause
from kohort.errors import BrokerError, KohortError, PartlyDoneError

K = TypeVar("K")
V = TypeVar("V")

#: Between two rounds, seconds.
_AGAIN_S: Final = 0.1


@dataclass(slots=True)
class Outcome(Generic[K, V]):
    """What became of each thing, in the order asked."""

    during: str
    done: dict[K, V] = field(default_factory=dict)
    failed: dict[K, KohortError] = field(default_factory=dict)

    def settle(self) -> dict[K, V]:
        """All that was done.

        Raises:
            PartlyDoneError: some of it was not; where only one thing was asked for its own error.
        """
        if not self.failed:
            return self.done
        if len(self.failed) == 1 and not self.done:
            raise next(iter(self.failed.values()))
        raise PartlyDoneError(self.during, self.done, self.failed)


async def carry_out(
    wanted: Iterable[K],
    ask: Callable[[Sequence[K]], Awaitable[Mapping[K, V | KohortError]]],
    *,
    during: str,
    within_s: float,
    per_request: Callable[[K], float] = lambda _: 0.0,
    is_passing: Callable[[KohortError], bool] = lambda _: True,
) -> Outcome[K, V]:
    """Ask for several things until each is done, or refused for good, or time is up.

    Args:
        ask: one request and what it says of each thing; an error that it raises is that of all that it was asked for,
            and of what would have come behind.
        per_request: which part of what one request may have a thing takes, 0 to 1.
        is_passing: whether to ask again after one of the errors that may pass.

    Raises:
        KohortError: of `ask`, where nothing is known of anything yet.
    """
    order = list(dict.fromkeys(wanted))
    deadline = time.monotonic() + within_s
    found: dict[K, V | KohortError] = {}
    left = order
    while left:
        for part in _parts(left, per_request):
            try:
                found.update(await ask(part))
            except KohortError as why:
                if not found:
                    raise
                found.update({each: why for each in order if each not in found or each in part})
                break
        else:
            left = [each for each in left if _may_pass(found.get(each), is_passing)]
            if left and time.monotonic() < deadline:
                await Pause(_AGAIN_S)
                continue
        break
    outcome: Outcome[K, V] = Outcome(during)
    for each in order:
        said = found.get(each, KohortError(f"the broker has said nothing of {each}"))
        if isinstance(said, KohortError):
            outcome.failed[each] = said
        else:
            outcome.done[each] = said
    return outcome


def _may_pass(said: object, is_passing: Callable[[KohortError], bool]) -> bool:
    return isinstance(said, BrokerError) and may_pass(said.code) and is_passing(said)


def _parts(things: Sequence[K], per_request: Callable[[K], float]) -> Iterable[list[K]]:
    part: list[K] = []
    full = 0.0
    for each in things:
        full += per_request(each)
        if part and full > 1:
            yield part
            part, full = [], per_request(each)
        part.append(each)
    yield part
