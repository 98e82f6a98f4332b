"""Capability tokens: make them with a broker's root keys, narrow them anywhere, and read them.

>>> import secrets
>>> from kohort import capabilities
>>> keys = capabilities.RootKeys.of(secrets.token_bytes(32))
>>> wide = capabilities.mint(keys, capabilities.operations("read", "commit"), token_id=secrets.token_bytes(16))
>>> narrow = capabilities.attenuate(wide, capabilities.topics("orders"), capabilities.not_after(1_900_000_000_000))
>>> for row in capabilities.explain(narrow):
...     print(row.link, row.caveat, row.value)
1 operations commit, read
2 topics orders
3 not_after 2030-03-17T17:46:40Z
"""

from __future__ import annotations

from kohort.security.capabilities.capability import Capability, Rate, Row, attenuate, explain, mint, parse, verify
from kohort.security.capabilities.caveats import (
    CapabilityError,
    Caveat,
    Names,
    byte_rate,
    epoch,
    groups,
    label,
    log_level,
    member,
    not_after,
    operations,
    partitions,
    peers,
    request_rate,
    topics,
)
from kohort.security.capabilities.partition_sets import PartitionSet
from kohort.security.capabilities.root_keys import RootKeys, read_keys, write_keys

__all__ = [
    "mint",
    "attenuate",
    "parse",
    "verify",
    "explain",
    "Capability",
    "CapabilityError",
    "Caveat",
    "Names",
    "PartitionSet",
    "Rate",
    "RootKeys",
    "Row",
    "read_keys",
    "write_keys",
    "operations",
    "topics",
    "partitions",
    "groups",
    "member",
    "epoch",
    "not_after",
    "byte_rate",
    "request_rate",
    "log_level",
    "label",
    "peers",
]
