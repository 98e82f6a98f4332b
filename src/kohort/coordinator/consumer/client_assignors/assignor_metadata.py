"""Client-side assignors in heartbeats: validation, records, and the group's choice of one assignor.

Laws: a member's assignors are stored, and are removed with the member. A join sets all fields.
Source: KIP-848 as drafted (`ClientAssignors`, null is unchanged).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from kohort.assign.interface import Assignable
from kohort.coordinator.commands import JOIN_EPOCH, ClientAssignor, ConsumerGroupHeartbeat
from kohort.coordinator.consumer.assignment.assignor_input import chosen_assignor
from kohort.coordinator.consumer.client_assignors.state import Shape, shape_of, size_of
from kohort.coordinator.consumer.subscription_metadata import NO_CHANGE, MembershipChange, count_members
from kohort.coordinator.model import ConsumerGroup
from kohort.coordinator.records.types import ClientAssignorsForgotten, ClientAssignorsSet, Record
from kohort.coordinator.settings import GroupSettings
from kohort.errors import ErrorCode, Refused


def take_assignors(
    group: ConsumerGroup,
    command: ConsumerGroupHeartbeat,
    change: MembershipChange,
    settings: GroupSettings,
    *,
    member_id: str,
    former_id: str,
) -> tuple[list[Record], MembershipChange, bool]:
    """Store the client-side assignors that a heartbeat sets.

    `member_id`: may differ from the command's. `former_id`: the static member that this one replaces, otherwise
    `member_id`.

    Returns:
        The records, the change with the assignors, and whether the group needs a new target for them.

    Raises:
        Refused: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR or GROUP_MAX_SIZE_REACHED.
    """
    said, side = command.client_assignors, group.client_assignors
    if said is None and (side is None or command.member_epoch != JOIN_EPOCH):
        return [], change, choice_of(group, settings) != choice_of(group, settings, change)
    known = {} if side is None else side.assignors
    before, held, after = known.get(former_id, ()), known.get(member_id, ()), said or ()
    check_assignors(after)
    check_room(group, before, after)
    change = replace(change, assignors={member_id: after})
    records: list[Record] = []
    if after and after != held:
        records.append(ClientAssignorsSet(group_id=group.group_id, member_id=member_id, assignors=after))
    elif held and not after:
        records.append(ClientAssignorsForgotten(group_id=group.group_id, member_id=member_id))
    chosen = choice_of(group, settings, change)
    if chosen != choice_of(group, settings):
        return records, change, True
    if chosen.version is None:
        return records, change, False
    now, then = _named(after, chosen.name), _named(before, chosen.name)
    is_other = then is None or now is None or (now.version, now.metadata) != (then.version, then.metadata)
    return records, change, is_other or (now is not None and now.reason != 0)


def _named(assignors: tuple[ClientAssignor, ...], name: str) -> ClientAssignor | None:
    return next((each for each in assignors if each.name == name), None)


# Choice of a group's client-side assignor: common to all members, preferred by most.
#
# Laws: the choice follows from the members' assignors and preferences, and from the settings; the order of joining does
# not matter. An assignor counts only if all members have a common version of it. An administrator's choice
# (`group.assignor`) takes precedence.
# Source: KIP-848 as drafted (the highest preference that all members have); KIP-268 (versions).


class Choice(NamedTuple):
    """An assignor's name; `version`: the highest common one, `None` for a server-side assignor."""

    name: str
    version: int | None


def choice_of(group: ConsumerGroup, settings: GroupSettings, change: MembershipChange = NO_CHANGE) -> Choice:
    """Return the assignor of the group's targets after the change."""
    found = client_choice(group, settings, change)
    return Choice(chosen_assignor(group, settings, change), None) if found is None else found


def client_choice(group: ConsumerGroup, settings: GroupSettings, change: MembershipChange = NO_CHANGE) -> Choice | None:
    """Return the client-side assignor that all members have, `None` if there is none."""
    side = group.client_assignors
    if settings.group_assignor or (side is None and not change.assignors):
        return None
    shapes = {} if side is None else side.shapes
    if change.assignors or change.gone:
        shapes = _shapes_after(group, change)
    if not shapes or sum(shapes.values()) != count_members(group, change):
        return None
    return choose(shapes)


def choose(shapes: Mapping[Shape, int]) -> Choice | None:
    """Choose among the assignors that all members have in a common version the one most prefer.

    >>> a, b = ("a", 0, 3), ("b", 1, 1)
    >>> choose({(a, b): 2, (("b", 1, 4), ("a", 2, 9)): 1}), choose({(a,): 1, (("a", 4, 4),): 1})
    (Choice(name='a', version=3), None)
    """
    ranges: dict[str, tuple[int, int, int]] = {}
    for shape in shapes:
        for name, minimum, maximum in shape:
            low, high, count = ranges.get(name, (minimum, maximum, 0))
            ranges[name] = max(low, minimum), min(high, maximum), count + 1
    highest = {name: high for name, (low, high, count) in ranges.items() if count == len(shapes) and low <= high}
    if not highest:
        return None
    votes = dict.fromkeys(sorted(highest), 0)
    for shape, count in shapes.items():
        votes[next(name for name, _, _ in shape if name in highest)] += count
    # Of equal ones max keeps the first.
    best = max(votes, key=lambda name: votes[name])
    return Choice(best, highest[best])


def _shapes_after(group: ConsumerGroup, change: MembershipChange) -> dict[Shape, int]:
    side = group.client_assignors
    after = {} if side is None else dict(side.shapes)
    known = {} if side is None else side.assignors
    for member_id in {*change.assignors, *change.gone}:
        if member_id in known:
            shape = shape_of(known[member_id])
            after[shape] -= 1
            if not after[shape]:
                del after[shape]
    for member_id, assignors in change.assignors.items():
        if assignors and member_id not in change.gone:
            shape = shape_of(assignors)
            after[shape] = after.get(shape, 0) + 1
    return after


# Validation of a member's client-side assignors, and of messages to other members.
#
# Laws: a refusal changes nothing, and names the field and the allowed values.
# Source: KIP-848 as drafted (versions); the bounds on counts and lengths are kohort's own.

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
    """Refuse metadata beyond the group's size limit: GROUP_MAX_SIZE_REACHED."""
    held = 0 if group.client_assignors is None else group.client_assignors.metadata_bytes
    size = held - size_of(before) + size_of(after)
    if size > MOST_METADATA_BYTES_OF_GROUP and size > held:
        raise Refused(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"MetadataBytes of the ClientAssignors of all members may take {MOST_METADATA_BYTES_OF_GROUP} bytes",
        )


def check_said(assignable: Assignable, said: Sequence[tuple[str, int, bytes]]) -> str:
    """Return why an assignment's messages are invalid, as the end of a sentence; "" if they are valid."""
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
