"""The one registry of everything on the wire and in group logs that is kohort's own and not Kafka's.

Laws: an entry is never given another meaning and never taken out, only marked as past; stock clients and Apache Kafka
must be able to ignore every one of them. API keys are above 10,000, record types of `__consumer_offsets` from 20,000
on, tagged fields from 10,000 on, so that no number that Kafka may give out is taken.
"""

from __future__ import annotations

from typing import Final

#: The lowest numbers that entries may have.
FIRST_API_KEY: Final = 10_001
FIRST_TAG: Final = 10_000
FIRST_RECORD_TYPE: Final = 20_000

#: API key → name.
API_KEYS: Final[dict[int, str]] = {}
#: (class name of the message or struct, tag) → attribute.
TAGGED_FIELDS: Final[dict[tuple[str, int], str]] = {}
#: Type in the key of a record of `__consumer_offsets` → name.
RECORD_TYPES: Final[dict[int, str]] = {20_001: "GroupConfigs"}
