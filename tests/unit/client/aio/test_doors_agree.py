"""The doors for event loops have the methods of the blocking ones, with the same arguments; and what both refuse."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import kohort
import kohort.aio
from kohort.client.admin.admin import AdminDoor
from kohort.client.admin.questions import Calls
from kohort.client.consumer.door import ConsumerDoor
from kohort.client.foreign_names import ADMINS

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


def test_both_admins_have_each_call_of_each_family() -> None:
    """The calls are written once, in the families; a door names each of them."""
    calls = {
        name
        for family in Calls.__subclasses__()
        for name, _ in inspect.getmembers(family, inspect.iscoroutinefunction)
        if not name.startswith("_")
    }
    for door, own in ((kohort.Admin, {"close"}), (kohort.aio.Admin, {"close", "start"})):
        assert public(door).keys() - own - ADMINS.keys() == calls | {"from_config", "metrics"}
        awaited = {name for name, call in public(door).items() if inspect.iscoroutinefunction(call)}
        assert awaited == (set() if door is kohort.Admin else calls | own)


@pytest.mark.parametrize(
    ("door", "bases"),
    [
        (kohort.Admin, [AdminDoor]),
        (kohort.aio.Admin, [AdminDoor]),
        (kohort.Consumer, [ConsumerDoor]),
        (kohort.aio.Consumer, [ConsumerDoor]),
    ],
)
def test_a_door_holds_its_calls_and_inherits_none(door: type, bases: list[type]) -> None:
    """But for what both doors of a client have, which is written once."""
    assert [each for each in door.__mro__[1:] if each is not object] == bases


@pytest.mark.parametrize("name", ["Consumer", "Producer", "Admin"])
@pytest.mark.parametrize("module", [kohort, kohort.aio], ids=["blocking", "aio"])
@pytest.mark.parametrize("way", [pickle.dumps, copy.copy, copy.deepcopy])
def test_client_does_not_leave_its_process(name: str, module: Any, way: Callable[[object], object]) -> None:
    """As it would in a closure of Spark's, or an argument of multiprocessing's."""
    client = getattr(module, name)(bootstrap_servers="127.0.0.1:1")
    with pytest.raises(TypeError, match=f"^{name} cannot be pickled or copied: its connections are .* options$"):
        way(client)


@pytest.mark.parametrize("door", [kohort.Admin, kohort.aio.Admin])
def test_an_application_may_derive_from_an_admin_client(door: type) -> None:
    heir = type("OurAdmin", (door,), {})
    assert public(heir).keys() == public(door).keys()
    assert public(heir)["create_topic"] is public(door)["create_topic"]
