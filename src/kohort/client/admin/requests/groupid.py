"""What a group's id may be, before anybody is asked about the group: its coordinator is looked for by it."""

from __future__ import annotations

from typing import Final

from kohort.errors import ConfigError

#: The length of a string on the wire is an int16.
_MOST_BYTES: Final = 32_767


def check_group_id(group_id: object) -> None:
    """Refuse what no request can have as a group id.

    Raises:
        TypeError: it is no text.
        ConfigError: it is too long, or no text that has bytes.
    """
    if not isinstance(group_id, str):
        raise TypeError(f"{group_id!r} is no group id; expected a text")
    try:
        size = len(group_id.encode())
    except UnicodeEncodeError as why:
        raise ConfigError(f"{group_id!r} is no group id: {why.reason}") from None
    if size > _MOST_BYTES:
        raise ConfigError(f"the group id {group_id[:20]}... has {size} bytes; at most {_MOST_BYTES} are possible")
