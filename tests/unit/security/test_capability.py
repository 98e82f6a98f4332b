"""Capability tokens: what they allow, what holders can make of them, and what is refused."""

from __future__ import annotations

import pytest

from kohort.capabilities import (
    CapabilityError,
    RootKeys,
    attenuate,
    groups,
    mint,
    not_after,
    operations,
    topics,
    verify,
)
from kohort.security.access_control import AclOperation, ResourceType

KEYS = RootKeys.of(bytes(range(32)))
TOKEN_ID = bytes(range(16))


def test_token_without_a_caveat_allows_everything() -> None:
    capability = verify(mint(KEYS, token_id=TOKEN_ID), KEYS)
    for resource in ResourceType:
        for operation in AclOperation:
            assert capability.refusal(operation=operation, resource_type=resource, name="x", now_ms=0) is None


def test_holder_narrows_a_token_without_a_key() -> None:
    wide = mint(KEYS, operations("read", "write"), token_id=TOKEN_ID)
    narrow = verify(attenuate(wide, operations("read"), topics("orders"), not_after(1_000)), KEYS)

    def refusal(operation: AclOperation, name: str, now_ms: int) -> str | None:
        return narrow.refusal(operation=operation, resource_type=ResourceType.TOPIC, name=name, now_ms=now_ms)

    assert refusal(AclOperation.READ, "orders", 1_000) is None
    assert refusal(AclOperation.WRITE, "orders", 1_000) == "operations"
    assert refusal(AclOperation.READ, "bills", 1_000) == "topics"
    assert refusal(AclOperation.READ, "orders", 1_001) == "not_after"


def test_token_of_other_keys_is_refused() -> None:
    token = mint(KEYS, groups("billing"), token_id=TOKEN_ID)
    assert verify(token, KEYS.rotated(bytes(32))).group == "billing"
    with pytest.raises(CapabilityError, match="root key that is not in force"):
        verify(token, KEYS.rotated(bytes(32)).rotated(bytes(31) + b"x"))
