"""Keys, versions and headers."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kohort.wire.codec import decode, encode
from kohort.wire.registry import (
    VERSIONS,
    ApiKey,
    RequestHeader,
    ResponseHeader,
    is_flexible,
    negotiate,
    request_class,
    request_header_version,
    response_class,
    response_header_version,
)
from kohort.wire.schema import schema_of


@pytest.mark.parametrize("key", ApiKey, ids=lambda key: key.name)
def test_the_registry_and_the_declarations_say_the_same(key: ApiKey) -> None:
    for cls, kind in ((request_class(key), "request"), (response_class(key), "response")):
        schema = schema_of(cls)
        assert (schema.key, schema.kind) == (key, kind)
        assert (schema.first_version, schema.last_version) == VERSIONS[key]
        first, last = VERSIONS[key]
        for version in range(first, last + 1):
            assert schema.is_flexible(version) == is_flexible(key, version)


def test_headers_follow_the_form_of_the_message() -> None:
    assert [request_header_version(ApiKey.METADATA, version) for version in (8, 9)] == [1, 2]
    assert [response_header_version(ApiKey.METADATA, version) for version in (8, 9)] == [0, 1]
    assert request_header_version(ApiKey.OFFSET_DELETE, 0) == 1


@pytest.mark.parametrize("version", range(6))
def test_api_versions_is_always_answered_under_header_0(version: int) -> None:
    """KIP-511: also for versions that we do not know."""
    assert response_header_version(ApiKey.API_VERSIONS, version) == 0
    assert request_header_version(ApiKey.API_VERSIONS, version) == (2 if version >= 3 else 1)


def test_client_id_keeps_its_old_form_in_the_flexible_header() -> None:
    header = RequestHeader(request_api_key=18, request_api_version=3, correlation_id=7, client_id="ab")
    assert encode(header, 1) == b"\x00\x12\x00\x03\x00\x00\x00\x07\x00\x02ab"
    assert encode(header, 2) == b"\x00\x12\x00\x03\x00\x00\x00\x07\x00\x02ab\x00"
    header.client_id = None
    assert encode(header, 2) == b"\x00\x12\x00\x03\x00\x00\x00\x07\xff\xff\x00"
    assert decode(RequestHeader, 2, encode(header, 2))[0] == header


def test_response_header_1_ends_with_a_tagged_section() -> None:
    assert encode(ResponseHeader(correlation_id=1), 0) == b"\x00\x00\x00\x01"
    assert encode(ResponseHeader(correlation_id=1), 1) == b"\x00\x00\x00\x01\x00"


@pytest.mark.parametrize(
    ("theirs", "ours_max", "agreed"),
    [
        ((0, 12), None, 12),
        ((0, 20), None, 13),
        ((13, 20), None, 13),
        ((14, 20), None, None),
        ((0, 20), 9, 9),
        ((10, 20), 9, None),
        ((0, -1), None, None),
    ],
)
def test_both_sides_use_the_newest_version_that_both_have(
    theirs: tuple[int, int], ours_max: int | None, agreed: int | None
) -> None:
    assert negotiate(ApiKey.METADATA, *theirs, ours_max) == agreed


def test_versions_below_our_first_are_not_agreed_on() -> None:
    assert negotiate(ApiKey.PRODUCE, 0, 2) is None
    assert negotiate(ApiKey.PRODUCE, 0, 3) == 3


def test_an_unknown_key_has_no_class() -> None:
    with pytest.raises(ValueError, match="9999 is no API"):
        request_class(9999)


@pytest.mark.process
def test_messages_are_imported_when_first_asked_for() -> None:
    """The start path of a broker pays only for the APIs that are used."""
    script = (
        "import sys; from kohort.wire import codec, foreign, registry\n"
        "loaded = lambda: sorted(name for name in sys.modules if name.startswith('kohort.wire.messages.'))\n"
        "assert loaded() == [], loaded()\n"
        "registry.request_class(registry.ApiKey.METADATA)\n"
        "assert loaded() == ['kohort.wire.messages.metadata'], loaded()\n"
        "assert not {'inspect', 'asyncio', 'numpy'} & set(sys.modules), 'heavy'\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=30)
