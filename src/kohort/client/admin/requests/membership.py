"""What is asked of groups whose members have names, and of those that go by sessions.

Source: KIP-345 as drafted; `group.membership` and the configs beside it are kohort's.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from kohort.errors import ConfigError

MODE: Final = "group.membership"
STATIC: Final = "static"
DYNAMIC: Final = "dynamic"
REGISTRATION: Final = "group.registration.timeout.ms"
EXPANSION: Final = "group.expansion.timeout.ms"
#: A new value forces a rebalance.
TOKEN: Final = "group.rebalance.token"


def static_changes(registration_timeout: object, expansion_timeout: object) -> dict[str, object]:
    """The configs that make a group static; `None` leaves a timeout as it is.

    Raises:
        TypeError: a timeout is neither milliseconds nor a `timedelta`.
        ConfigError: it is negative.
    """
    given = {REGISTRATION: registration_timeout, EXPANSION: expansion_timeout}
    timeouts = {name: _milliseconds(value, name) for name, value in given.items() if value is not None}
    return {MODE: STATIC, **timeouts}


def _milliseconds(given: object, name: str) -> int:
    if isinstance(given, timedelta):
        given = given // timedelta(milliseconds=1)
    if isinstance(given, bool) or not isinstance(given, int):
        raise TypeError(f"{name} cannot be {given!r}: milliseconds or a timedelta are expected")
    if given < 0:
        raise ConfigError(f"{name} cannot be {given}: no time is negative")
    return given
