"""The same as `client/admin/partly.py`, awaited.

Made of it by `python tools/aio_admin.py`: change it there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from kohort.client.admin.partly import _AGAIN_S, K, Outcome, V, _may_pass, _parts
from kohort.errors import KohortError


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
                await asyncio.sleep(_AGAIN_S)
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
