"""How long a group's name may be: the keys of the group log have an int16 for it.

Source: the layout of `__consumer_offsets`; Apache Kafka fails to write a longer one and answers UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

from typing import Final

from kohort.errors import ErrorCode, Refused

#: Group ids are as long at most, in bytes of UTF-8.
LONGEST_GROUP_ID: Final = 32_767
#: No character takes more bytes.
_WIDEST: Final = 4


def check_group_id_length(group_id: str) -> None:
    """Refuse a name that could not be written to the log: INVALID_GROUP_ID."""
    if len(group_id) * _WIDEST > LONGEST_GROUP_ID and len(group_id.encode("utf-8", "replace")) > LONGEST_GROUP_ID:
        raise Refused(ErrorCode.INVALID_GROUP_ID, f"a group's name has at most {LONGEST_GROUP_ID} bytes")
