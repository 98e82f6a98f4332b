"""Every declared message survives encoding and decoding in every version that it covers."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kohort.wire.messages
from kohort.errors import RemoteProtocolError
from kohort.wire.codec import decode, encode, encode_parts
from kohort.wire.schema import Message, schema_of
from support.builders.wire_strategies import message_strategy

MODULES = sorted(path.stem for path in Path(kohort.wire.messages.__path__[0]).glob("[a-z]*.py"))


def declared(module: str) -> list[type[Message]]:
    found = import_module(f"kohort.wire.messages.{module}")
    return [each for each in vars(found).values() if isinstance(each, type) and "_schema" in vars(each)]


CASES = [
    pytest.param(cls, version, id=f"{cls.__name__}-{version}")
    for module in MODULES
    for cls in declared(module)
    for version in range(schema_of(cls).first_version, schema_of(cls).last_version + 1)
]


@pytest.mark.parametrize(("cls", "version"), CASES)
@settings(max_examples=3)
@given(data=st.data())
def test_a_message_comes_back_as_it_was(cls: Any, version: int, data: st.DataObject) -> None:
    message = data.draw(message_strategy(cls, version, unknown_tags=True))
    encoded = encode(message, version)
    assert decode(cls, version, encoded) == (message, len(encoded))
    assert decode(cls, version, bytearray(encoded)) == (message, len(encoded))
    assert b"".join(encode_parts(message, version)) == encoded
    cut = data.draw(st.integers(0, max(0, len(encoded) - 1)))
    if encoded:
        with pytest.raises(RemoteProtocolError):
            decode(cls, version, encoded[:cut])
