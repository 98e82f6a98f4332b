"""Changes by the console: each has a preview of its effects, and is carried out in a second step.

Laws: a change is a call of the admin client with the visitor's own login: what the cluster refuses there is refused
here. Showing changes nothing. What is done is logged with the visitor.
Source: requirement J3; the commands with `--execute`, whose plans these are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal

from kohort.console.pages import PageError, Params, Values, link, number_of, text_of, time_of
from kohort.errors import ConfigError, GroupNotEmptyError
from kohort.ids import TopicPartition

if TYPE_CHECKING:
    from kohort import Admin

#: Rows of a plan that are shown.
_ROWS_SHOWN: Final = 200
#: What a change did or would do, a row each; with `execute` it is done.
Step = Callable[["Admin", Params, bool], list[Values]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One kind of change; `fields`: name of a parameter -> its label and an example."""

    title: str
    fields: Mapping[str, tuple[str, str]]
    carry_out: Step
    is_dangerous: bool = False


def _reset(admin: Admin, params: Params, execute: bool) -> list[Values]:
    topic = params.get("topic")
    _check_is_empty(admin, text_of(params, "group"), "resetting its offsets")
    rows = admin.reset_offsets(
        text_of(params, "group"), _target(params), of=[topic] if topic else None, execute=execute
    )
    return [
        {"partition": f"{row.topic}-{row.partition}", "committed": row.committed, "from then on": row.offset}
        for row in rows
    ]


def _check_is_empty(admin: Admin, group: str, during: str) -> None:
    """Refuse a change of a group that still has members, also when it is only previewed."""
    members = admin.describe_group(group).members
    if members:
        raise GroupNotEmptyError(group, [each.client_id or each.member_id for each in members], during=during)


def _target(params: Params) -> Literal["earliest", "latest"] | int | datetime:
    to = text_of(params, "to")
    ends: dict[str, Literal["earliest", "latest"]] = {"earliest": "earliest", "latest": "latest"}
    if to in ends:
        return ends[to]
    if to.isdecimal() and len(to) < 20:
        return int(to)
    return datetime.fromtimestamp(time_of(params, "to") / 1000).astimezone()


def _move(admin: Admin, params: Params, execute: bool) -> list[Values]:
    group, member = text_of(params, "group"), text_of(params, "member")
    place = TopicPartition(text_of(params, "topic"), number_of(params, "partition"))
    found = admin.describe_group(group)
    chosen = next(
        (each for each in found.members if member in (each.member_id, each.instance_id, each.client_id)), None
    )
    to = member if chosen is None else chosen.member_id
    owner = next((each.client_id for each in found.members if place in each.assignment), None)
    if execute:
        admin.switch_partition(group, place, to)
    else:
        (tried,) = admin.submit_moves(group, {place: to}, validate_only=True)
        if not tried.is_taken:
            raise ConfigError(tried.message or tried.code.name)
    name = to if chosen is None else f"{chosen.client_id} ({to})"
    return [{"partition": f"{place.topic}-{place.partition}", "from": owner, "to": name}]


def _configure(admin: Admin, params: Params, execute: bool) -> list[Values]:
    topic = params.get("topic")
    resource = ("topic", topic) if topic else ("group", text_of(params, "group"))
    name, value = text_of(params, "name"), params.get("value", "") or None
    ((_, entries),) = admin.describe_configs(resource, [name]).items()
    if not entries:
        raise ConfigError(f"a {resource[0]} has no config {name}")
    admin.alter_configs(resource, {name: value}, validate_only=not execute)
    return [{"config": name, "was": entries[0].value, "will be": value or "the broker's", "means": entries[0].doc}]


def _remove(admin: Admin, params: Params, execute: bool) -> list[Values]:
    group, member = text_of(params, "group"), text_of(params, "member")
    members = [each for each in admin.describe_group(group).members if member in (each.member_id, each.instance_id)]
    if not members:
        raise PageError(404, f"group {group} has no member {member}")
    if execute:
        admin.remove_members(group, [member], reason="removed by the console")
    return [
        {"member": each.client_id, "id": each.member_id, "host": each.client_host, "partitions": len(each.assignment)}
        for each in members
    ]


def _delete(admin: Admin, params: Params, execute: bool) -> list[Values]:
    group = text_of(params, "group")
    _check_is_empty(admin, group, "deleting it")
    rows = [row for row in admin.group_offsets(group) if row.committed is not None]
    if execute:
        admin.delete_groups([group])
    return [
        {"partition": f"{row.topic}-{row.partition}", "committed, and forgotten": row.committed} for row in rows
    ] or [{"group": group, "committed, and forgotten": "nothing"}]


def _config(title: str, *, example: tuple[str, str], **owner: tuple[str, str]) -> Change:
    name, value = ("Config", example[0]), ("Value; none: the broker's", example[1])
    return Change(title=title, fields={**owner, "name": name, "value": value}, carry_out=_configure)


_GROUP: Final = ("Group", "")
#: Kinds of changes by their names in URLs.
CHANGES: Final[Mapping[str, Change]] = {
    "reset": Change(
        title="Reset offsets",
        fields={
            "group": _GROUP,
            "topic": ("Topic, or all that it has committed", ""),
            "to": ("To", "earliest, latest, an offset, or 2026-11-28T14:02:11"),
        },
        carry_out=_reset,
        is_dangerous=True,
    ),
    "move": Change(
        title="Move a partition",
        fields={
            "group": _GROUP,
            "topic": ("Topic", ""),
            "partition": ("Partition", "0"),
            "member": ("To the member", "its id, static name or client id"),
        },
        carry_out=_move,
    ),
    "config": _config("Set a config of a group", group=_GROUP, example=("group.moves.per.second", "10")),
    "topic-config": _config("Set a config of a topic", topic=("Topic", ""), example=("retention.ms", "3600000")),
    "remove": Change(
        title="Remove a member",
        fields={"group": _GROUP, "member": ("Member", "its id, or its static name")},
        carry_out=_remove,
        is_dangerous=True,
    ),
    "delete": Change(title="Delete a group", fields={"group": _GROUP}, carry_out=_delete, is_dangerous=True),
}


def find_change(params: Params) -> Change:
    """Return the change that a query names."""
    found = CHANGES.get(params.get("kind", ""))
    if found is None:
        raise PageError(404, f"a change is one of {', '.join(CHANGES)}")
    return found


def change_values(change: Change, params: Params, rows: list[Values], *, said: str, is_done: bool) -> Values:
    """Return the values of the page of a change; `said`: why it cannot be done, empty if it can."""
    group, topic = params.get("group", ""), params.get("topic", "")
    given = {name: params[name] for name in change.fields if params.get(name)}
    return {
        "kind": params.get("kind", ""),
        "title": change.title,
        "is_dangerous": change.is_dangerous,
        "fields": [
            {"name": name, "label": label, "example": example, "value": given.get(name, "")}
            for name, (label, example) in change.fields.items()
        ],
        "rows": rows[:_ROWS_SHOWN],
        "left_out": max(0, len(rows) - _ROWS_SHOWN),
        "said": said,
        "is_done": is_done,
        "back": link("group", id=group) if group else link("topic", name=topic) if topic else "/groups",
    }
