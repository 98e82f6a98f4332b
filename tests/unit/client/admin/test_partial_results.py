"""One call for several things: rounds, requests of a bounded size, and what is known when one of them fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kohort.client.admin.questions import Outcome, carry_out
from kohort.client.steps import Pause
from kohort.errors import BrokerError, ErrorCode, KohortError, KohortTimeoutError, PartlyDoneError

Said = dict[str, str | KohortError]


def refusal(code: ErrorCode) -> BrokerError:
    return BrokerError(code, during="asking")


def carried_out(*given: Any, **named: Any) -> tuple[Outcome[str, str], list[Pause]]:
    """The outcome, and the pauses that were asked for on the way to it; none of them takes time."""
    call, pauses = carry_out(*given, **named), []
    try:
        while True:
            pauses.append(call.send(None))
    except StopIteration as end:
        return end.value, pauses


def test_what_may_pass_is_asked_again_and_nothing_else_is() -> None:
    rounds: list[list[str]] = []

    async def ask(names: Sequence[str]) -> Said:
        rounds.append(list(names))
        is_first = len(rounds) == 1
        busy, never = refusal(ErrorCode.REQUEST_TIMED_OUT), refusal(ErrorCode.TOPIC_ALREADY_EXISTS)
        return {each: {"b": busy if is_first else "b!", "c": never}.get(each, f"{each}!") for each in names}

    outcome, pauses = carried_out("abc", ask, during="asking", within_s=30.0)

    assert rounds == [["a", "b", "c"], ["b"]]
    assert pauses == [Pause(0.1)]
    assert (outcome.done, list(outcome.failed)) == ({"a": "a!", "b": "b!"}, ["c"])
    with pytest.raises(PartlyDoneError, match=r"2 of 3 done \(a, b\), 1 not: c: TOPIC_ALREADY_EXISTS"):
        outcome.settle()


def test_what_may_pass_and_does_not_fails_when_time_is_up() -> None:
    why = refusal(ErrorCode.REQUEST_TIMED_OUT)

    async def ask(names: Sequence[str]) -> Said:
        return dict.fromkeys(names, why)

    outcome, _ = carried_out("a", ask, during="asking", within_s=0.0)
    with pytest.raises(BrokerError, match="REQUEST_TIMED_OUT while asking"):
        outcome.settle()


def test_requests_have_a_bounded_size() -> None:
    """A thing that is too large for any goes alone."""
    requests: list[str] = []

    async def ask(names: Sequence[str]) -> Said:
        requests.append("".join(names))
        return {each: each for each in names}

    parts = {"a": 0.5, "b": 0.5, "c": 0.1, "d": 3.0, "e": 0.9, "f": 0.1}
    outcome, _ = carried_out([*parts, "a"], ask, during="asking", within_s=1.0, per_request=parts.__getitem__)

    assert requests == ["ab", "c", "d", "ef"]
    assert list(outcome.settle()) == list(parts)


def test_what_was_done_before_an_end_in_the_middle_is_told() -> None:
    """Its request and those behind it are not known to be done."""

    async def ask(names: Sequence[str]) -> Said:
        if names == ["b"]:
            raise KohortTimeoutError("the connection was lost")
        return {each: each for each in names}

    outcome, _ = carried_out("abc", ask, during="asking", within_s=1.0, per_request=lambda _: 1.0)

    assert outcome.done == {"a": "a"}
    assert {each: str(why) for each, why in outcome.failed.items()} == dict.fromkeys("bc", "the connection was lost")
    with pytest.raises(KohortTimeoutError, match="lost"):
        carried_out("b", ask, during="asking", within_s=1.0)


def test_what_nobody_has_said_anything_of_is_not_done() -> None:
    async def ask(_: Sequence[str]) -> Said:
        return {"a": "a"}

    outcome, _ = carried_out("ab", ask, during="asking", within_s=1.0)
    assert str(outcome.failed["b"]) == "the broker has said nothing of b"
