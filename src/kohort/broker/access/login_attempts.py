"""The login attempts of each address: after too many failures the next attempts wait.

Laws: an attempt takes one of the failures that its address is allowed in advance, and returns it unless it fails. So no
more attempts fail than allowed, however many begin at once. A waiting attempt delays no other address. The users of one
address take turns, and the attempts of a user are in the order of their arrival: a program with an old password does
not lock out other programs of its address.
Source: requirement S8 (5 failed logins a second and address).
"""

from __future__ import annotations

import asyncio
import ipaddress
from typing import Final, Protocol

#: Addresses that are kept; above this number those without recent failures are dropped.
MOST_ADDRESSES: Final = 10_000
#: Bits of an IPv6 address that a provider gives to one customer, who may use all addresses below.
_CUSTOMER_BITS: Final = 64


class Attempt(Protocol):
    """A login whose attempt may have to wait."""

    #: A number that stands for the claimed user; it does not change while the attempt waits.
    claimed_user: int

    def start_attempt(self) -> None:
        """Carry out the attempt; `LoginAttempts.end` is called once it is over."""


class _Address:
    """The attempts of one address."""

    __slots__ = ("at_s", "is_going_on", "left", "timer", "waiting")

    def __init__(self, left: float, at_s: float) -> None:
        #: Failures that were still allowed at `at_s`, in the loop's seconds.
        self.left = left
        self.at_s = at_s
        #: Claimed user -> the user's waiting attempts, at least one, the oldest first. The user whose turn is next is
        #: the first key.
        self.waiting: Final[dict[int, dict[Attempt, None]]] = {}
        #: The timer that starts the next attempt.
        self.timer: asyncio.TimerHandle | None = None
        #: Whether attempts are being started.
        self.is_going_on = False


class LoginAttempts:
    """The login attempts at one listener."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, failures_per_second: int) -> None:
        self._loop: Final = loop
        self._most: Final = failures_per_second
        self._addresses: Final[dict[str, _Address]] = {}

    def begin(self, host: str, attempt: Attempt) -> None:
        """Start an attempt of a host, now or when its address is allowed another failure."""
        key = _key(host)
        address = self._addresses.get(key)
        if address is None:
            if len(self._addresses) >= MOST_ADDRESSES:
                self._forget_calm()
            address = self._addresses[key] = _Address(self._most, self._loop.time())
        address.waiting.setdefault(attempt.claimed_user, {})[attempt] = None
        self._go_on(address)

    def end(self, host: str, *, has_failed: bool) -> None:
        """Count the end of a started attempt."""
        address = self._addresses.get(_key(host))
        if address is not None and not has_failed:
            address.left = min(self._most, address.left + 1)
            self._go_on(address)

    def cancel(self, host: str, attempt: Attempt) -> None:
        """Remove an attempt that may be waiting; its connection is closed."""
        address = self._addresses.get(_key(host))
        attempts = None if address is None else address.waiting.get(attempt.claimed_user)
        if address is not None and attempts is not None:
            attempts.pop(attempt, None)
            if not attempts:
                del address.waiting[attempt.claimed_user]

    def stop(self) -> None:
        """Stop all timers."""
        for address in self._addresses.values():
            if address.timer is not None:
                address.timer.cancel()
        self._addresses.clear()

    def _go_on(self, address: _Address) -> None:
        if address.is_going_on:
            # An attempt that was just started has ended at once. The loop below uses the failure that it returned.
            return
        now_s = self._loop.time()
        address.left = min(self._most, address.left + (now_s - address.at_s) * self._most)
        address.at_s = now_s
        address.is_going_on = True
        try:
            while address.waiting and address.left >= 1:
                user = next(iter(address.waiting))
                attempts = address.waiting.pop(user)
                attempt = next(iter(attempts))
                del attempts[attempt]
                if attempts:
                    # The next turn is another user's, if there is one.
                    address.waiting[user] = attempts
                address.left -= 1
                attempt.start_attempt()
        finally:
            address.is_going_on = False
        if address.waiting and address.timer is None:
            # A millisecond later than due: if the clock rounds down, the timer would fire too early for an attempt.
            address.timer = self._loop.call_later((1 - address.left) / self._most + 0.001, self._on_time, address)

    def _on_time(self, address: _Address) -> None:
        address.timer = None
        self._go_on(address)

    def _forget_calm(self) -> None:
        now_s = self._loop.time()
        for key, address in list(self._addresses.items()):
            is_calm = address.left + (now_s - address.at_s) * self._most >= self._most
            if is_calm and not address.waiting:
                del self._addresses[key]


def _key(host: str) -> str:
    """Return the key of an address: an IPv4 address, or the network of an IPv6 address.

    >>> _key("192.0.2.7"), _key("2001:db8::1") == _key("2001:db8::ffff")
    ('192.0.2.7', True)
    """
    if ":" not in host:
        return host
    try:
        return str(ipaddress.ip_network(f"{host.partition('%')[0]}/{_CUSTOMER_BITS}", strict=False))
    except ValueError:
        return host
