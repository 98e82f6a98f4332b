"""Validation of a member's client-side assignors, and of messages to other members.

Laws: a refusal changes nothing, and names the field and the allowed values.
Source: KIP-848 as drafted (versions); the bounds on counts and lengths are kohort's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kohort.assign.interface import Assignable
from kohort.coordinator.client_assignors import size_of
from kohort.coordinator.commands.values import ClientAssignor
from kohort.coordinator.model import ConsumerGroup
from kohort.errors import ErrorCode, Refused

#: Most assignors of one member.
MOST_ASSIGNORS: Final = 16
#: Most bytes of metadata of one member, and of all members of a group.
MOST_METADATA_BYTES: Final = 64 * 1024
MOST_METADATA_BYTES_OF_GROUP: Final = 16 * 1024 * 1024
#: Longest name of an assignor, in characters.
LONGEST_NAME: Final = 249


def check_assignors(assignors: Sequence[ClientAssignor]) -> None:
    """Refuse malformed assignors: INVALID_REQUEST, or UNSUPPORTED_ASSIGNOR for impossible versions."""
    if len(assignors) > MOST_ASSIGNORS:
        raise _invalid(f"ClientAssignors has {len(assignors)} assignors, more than {MOST_ASSIGNORS}")
    names = [each.name for each in assignors]
    if not all(0 < len(name) <= LONGEST_NAME for name in names):
        raise _invalid(f"a Name in ClientAssignors is empty or longer than {LONGEST_NAME} characters")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise _invalid(f"ClientAssignors has {twice} more than once")
    if size_of(tuple(assignors)) > MOST_METADATA_BYTES:
        raise _invalid(
            f"MetadataBytes of ClientAssignors take {size_of(tuple(assignors))} bytes, more than {MOST_METADATA_BYTES}"
        )
    for each in assignors:
        low, high = each.minimum_version, each.maximum_version
        if low < 0 or low > high:
            why = f"MinimumVersion {low} and MaximumVersion {high} leave no version"
        elif not low <= each.version <= high:
            why = f"MetadataVersion {each.version} is not between MinimumVersion {low} and MaximumVersion {high}"
        else:
            continue
        raise Refused(ErrorCode.UNSUPPORTED_ASSIGNOR, f"the client assignor {each.name} cannot be used: {why}")


def check_room(group: ConsumerGroup, before: tuple[ClientAssignor, ...], after: tuple[ClientAssignor, ...]) -> None:
    """Refuse metadata for which the group has no room: GROUP_MAX_SIZE_REACHED."""
    held = 0 if group.client_side is None else group.client_side.metadata_bytes
    size = held - size_of(before) + size_of(after)
    if size > MOST_METADATA_BYTES_OF_GROUP and size > held:
        raise Refused(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"MetadataBytes of the ClientAssignors of all members may take {MOST_METADATA_BYTES_OF_GROUP} bytes",
        )


def check_said(assignable: Assignable, said: Sequence[tuple[str, int, bytes]]) -> str:
    """Return the fault of the messages beside an assignment, as the end of a sentence; "" if none."""
    known = {member.member_id for member in assignable.members}
    seen: set[str] = set()
    total = 0
    for member_id, _, metadata in said:
        if member_id not in known:
            return f"said something to {member_id[:LONGEST_NAME]}, which was not to be assigned anything"
        if member_id in seen:
            return f"said something to {member_id} twice"
        seen.add(member_id)
        total += len(metadata)
        if len(metadata) > MOST_METADATA_BYTES:
            return f"gave {member_id} {len(metadata)} bytes of metadata, more than {MOST_METADATA_BYTES}"
    if total > MOST_METADATA_BYTES_OF_GROUP:
        return f"gave members {total} bytes of metadata, more than {MOST_METADATA_BYTES_OF_GROUP}"
    return ""


def _invalid(message: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, message)
