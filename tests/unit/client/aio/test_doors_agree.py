"""The doors for event loops have the methods of the blocking ones, with the same arguments."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import kohort
import kohort.aio

#: What only waits for callbacks has no sense where the loop calls them; `produce` is `send` in other words.
BLOCKING_ONLY = {"Producer": {"poll", "produce"}, "Consumer": set[str](), "Admin": set[str]()}
#: aiokafka's names.
LOOP_ONLY = {
    "Producer": {"start", "stop", "send_and_wait"},
    "Consumer": {"start", "stop", "getone", "getmany"},
    "Admin": {"start"},
}


def public(cls: type) -> dict[str, Any]:
    return {name: value for name, value in inspect.getmembers(cls) if not name.startswith("_")}


@pytest.mark.parametrize("name", ["Consumer", "Producer", "Admin"])
def test_methods_and_arguments_are_the_same(name: str) -> None:
    blocking, on_loop = public(getattr(kohort, name)), public(getattr(kohort.aio, name))
    assert blocking.keys() - BLOCKING_ONLY[name] == on_loop.keys() - LOOP_ONLY[name]
    for method in blocking.keys() & on_loop.keys():
        if callable(blocking[method]):
            assert inspect.signature(blocking[method]).parameters == inspect.signature(on_loop[method]).parameters, (
                method
            )
