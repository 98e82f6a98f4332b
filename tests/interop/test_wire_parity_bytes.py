"""Our bytes against those of kio and kafka-python, both ways, for every message in every version."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.wire.codec import decode, encode
from kohort.wire.schema import Message, schema_of
from support.builders.wire_messages import messages_and_versions
from support.builders.wire_strategies import drawn_messages
from support.peers.foreign_wire import FOREIGN, GAPS, Foreign, fit

pytestmark = pytest.mark.interop

# No other library has the records of `__consumer_offsets`; the comparison of schemas covers those.
MESSAGES = [
    (cls, version) for cls, version in messages_and_versions() if not schema_of(cls).kind.startswith("coordinator-")
]
PAIRS = [pytest.param(cls, version, id=f"{cls.__name__}-v{version}") for cls, version in MESSAGES]


def test_gaps_are_those_that_are_listed() -> None:
    """No library is left out in silence, none is left out any longer than it must, and one at least takes part."""
    assert len(PAIRS) > 300
    for cls, version in MESSAGES:
        missing = {foreign.name for foreign in FOREIGN if not foreign.has(cls, version)}
        listed = {library for library, name in GAPS if name == cls.__name__}

        assert missing == listed, f"{cls.__name__} {version}"
        assert len(missing) < len(FOREIGN), f"{cls.__name__} {version}"


@pytest.mark.parametrize(("cls", "version"), PAIRS)
def test_messages_are_the_same(cls: type[Message], version: int) -> None:
    """Same values, same bytes; each side understands the other's, and has the same defaults.

    Tagged fields that hold theirs are not written.
    """
    for message in drawn_messages(cls, version, count=6, max_elements=2):
        compare_with_all(message, version)


def compare_with_all(message: Message, version: int) -> None:
    for foreign in FOREIGN:
        if foreign.has(type(message), version):
            copy, _ = decode(type(message), version, encode(message, version))
            compare(foreign, fit(foreign, copy, version), version)


def compare(foreign: Foreign, message: Any, version: int) -> None:
    ours = encode(message, version)
    theirs = foreign.encode(message, version)

    told = f"{foreign.name}, version {version}: {message}"
    assert ours == theirs, told
    assert decode(type(message), version, theirs) == (message, len(theirs)), told
    assert foreign.reencode(type(message), version, ours) == ours, told
