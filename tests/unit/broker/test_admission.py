"""Who gets a connection when there are many."""

from __future__ import annotations

import logging

import pytest

from kohort.broker.limits.connection_quotas import ConnectionQuotas, Limits
from kohort.broker.options.listeners import ListenerSettings


class Guest:
    """A connection of an address."""

    def __init__(self, host: str, port: int = 1, *, listener: str = "PLAINTEXT") -> None:
        self.peer_host, self.peer_port = host, port
        self.listener = ListenerSettings(name=listener, host="", port=0)
        self.is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True


def admission(limit: int = 10, *, limit_per_host: int = 100) -> ConnectionQuotas:
    return ConnectionQuotas(lambda: 0.0, Limits(most=limit, per_host=limit_per_host))


def at_work(door: ConnectionQuotas, count: int, host: str = "a") -> list[Guest]:
    guests = [Guest(host) for _ in range(count)]
    for each in guests:
        assert door.enter(each)
        door.prove(each)
    return guests


def test_a_connection_beyond_the_limit_is_not_counted() -> None:
    door = admission(2)
    first, _ = at_work(door, 2)
    assert not door.enter(Guest("a"))
    door.leave(first)
    assert door.enter(Guest("a"))
    assert len(door) == 2


def test_who_has_asked_nothing_gives_way_oldest_first() -> None:
    door = admission(3)
    at_work(door, 1)
    silent = [Guest("b"), Guest("b")]
    for each in silent:
        assert door.enter(each)
    assert door.enter(Guest("a"))
    assert [each.is_aborted for each in silent] == [True, False]
    assert len(door) == 3


def test_silence_keeps_nobody_out_however_much_of_it_there_is() -> None:
    door = admission(2_000, limit_per_host=10_000)
    silent = [Guest("b") for _ in range(5_000)]
    assert all(map(door.enter, silent))
    assert len(door) == 2_000
    newcomer = Guest("a")
    assert door.enter(newcomer)
    assert not newcomer.is_aborted


def test_the_last_tenth_is_for_addresses_that_are_at_work() -> None:
    door = admission(10)
    at_work(door, 1)
    at_work(door, 8, host="b")
    assert not door.enter(Guest("c"))
    at_work(door, 1)
    assert not door.enter(Guest("a")), "there is an end for them, too"


def test_an_address_that_has_left_is_not_at_work_any_more() -> None:
    """What is kept is for those that have connections at work now."""
    door = admission(10)
    left = at_work(door, 1, host="c")
    at_work(door, 8, host="b")
    door.leave(left[0])
    at_work(door, 1, host="b")
    assert not door.enter(Guest("c"))


def test_the_first_address_may_have_all_of_them() -> None:
    assert len(at_work(admission(10), 10)) == 10


def test_one_address_has_a_limit_of_its_own() -> None:
    door = admission(10, limit_per_host=2)
    first, _ = at_work(door, 2)
    assert not door.enter(Guest("a"))
    assert door.refused == 1
    assert door.enter(Guest("b"))
    door.leave(first)
    assert door.enter(Guest("a"))


def test_who_gave_way_is_not_counted_off_again_when_it_closes() -> None:
    door = admission(1)
    silent = Guest("b")
    door.enter(silent)
    at_work(door, 1)
    assert silent.is_aborted
    door.leave(silent)
    door.prove(silent)
    assert len(door) == 1
    assert not door.enter(Guest("a"))


def test_refusals_are_logged_once_a_second_with_their_number(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 0.0
    door = ConnectionQuotas(lambda: now_s, Limits(most=1, per_host=100))
    at_work(door, 1)
    with caplog.at_level(logging.WARNING, logger="kohort"):
        for _ in range(500):
            door.enter(Guest("a", 7))
        now_s = 1.5
        door.enter(Guest("a", 7))
    assert [record.getMessage() for record in caplog.records] == [
        "event=connection_refused peer=a:7 reason='max.connections' times=1",
        "event=connection_refused peer=a:7 reason='max.connections' times=500",
    ]


# -- several listeners


def doors(**limits: Limits) -> ConnectionQuotas:
    """Of the whole broker: ten connections, four of one address."""
    return ConnectionQuotas(
        lambda: 0.0,
        Limits(most=10, per_host=4, by_host={"vip": 6}),
        by_listener=limits,
        protected="IN",
        idle_since=lambda guest: guest.peer_port,
    )


def crowd(door: ConnectionQuotas, listener: str, hosts: str) -> list[Guest]:
    """Guests at work, one of each host."""
    guests = [Guest(host, number, listener=listener) for number, host in enumerate(hosts)]
    for each in guests:
        assert door.enter(each)
        door.prove(each)
    return guests


def test_listener_has_its_own_number_within_that_of_all() -> None:
    door = doors(OUT=Limits(most=3, per_host=100))
    crowd(door, "OUT", "aaa")
    assert not door.enter(Guest("a", listener="OUT"))
    crowd(door, "MIDDLE", "bcdefbc")
    assert len(door) == 10
    assert not door.enter(Guest("b", listener="MIDDLE"))
    assert door.reached == {"max.connections": 2}


def test_silent_one_gives_way_to_a_newcomer_of_its_own_listener_alone() -> None:
    door = doors(OUT=Limits(most=2, per_host=100))
    elsewhere, silent = Guest("a", listener="MIDDLE"), Guest("a", listener="OUT")
    crowd(door, "OUT", "b")
    assert door.enter(elsewhere) and door.enter(silent)
    assert door.enter(Guest("b", listener="OUT"))
    assert (elsewhere.is_aborted, silent.is_aborted) == (False, True)


def test_addresses_are_counted_together_unless_a_listener_has_limits_of_its_own() -> None:
    door = doors(OUT=Limits(most=100, per_host=1))
    crowd(door, "MIDDLE", "aa")
    crowd(door, "IN", "aa")
    assert not door.enter(Guest("a", listener="MIDDLE"))
    (guest,) = crowd(door, "OUT", "a")
    assert not door.enter(Guest("a", listener="OUT"))
    door.leave(guest)
    assert door.enter(Guest("a", listener="OUT"))
    assert door.reached == {"max.connections.per.ip": 2}


def test_single_address_has_another_limit() -> None:
    door = doors()
    guests = [Guest("vip", listener="MIDDLE") for _ in range(7)]
    assert [door.enter(each) for each in guests] == [True] * 6 + [False]


def test_newcomer_of_the_protected_listener_takes_the_place_of_the_idlest_of_the_others() -> None:
    door = doors()
    inside = crowd(door, "IN", "xyz")
    others = crowd(door, "MIDDLE", "abcdefa")
    assert not door.enter(Guest("a", listener="MIDDLE"))
    assert door.enter(Guest("new", listener="IN"))
    assert [each.is_aborted for each in others] == [True, *[False] * 6]
    assert not any(each.is_aborted for each in inside)
    assert len(door) == 10


def test_protected_listener_alone_has_no_place_to_take() -> None:
    door = doors()
    crowd(door, "IN", "abcdefghij")
    assert not door.enter(Guest("a", listener="IN"))


def test_counts_are_as_before_once_all_have_left() -> None:
    door = doors(OUT=Limits(most=3, per_host=2))
    guests = [*crowd(door, "OUT", "ab"), *crowd(door, "IN", "ab")]
    for each in (*guests, *guests):
        door.leave(each)
    assert len(door) == 0
    crowd(door, "OUT", "aab")
    crowd(door, "IN", "aaaab")
