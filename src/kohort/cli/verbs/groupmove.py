"""`kohort group move GROUP`: move partitions to members, list the moves, and set their pace.

Laws: every option is validated before anything is changed. If the coordinator would refuse one of several moves, none
of them is submitted, and the error gives the reason.
Source: requirements H4 and H9.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kohort.cli.bootstrap import open_admin
from kohort.cli.output import print_json, print_table, show
from kohort.cli.verbs.why import read_partition
from kohort.errors import ConfigError, KohortError
from kohort.ids import TopicPartition
from kohort.journal.words import show_clock, show_duration

if TYPE_CHECKING:
    from kohort import Admin
    from kohort.client.admin.results.groups import GroupDescription
    from kohort.client.admin.results.moves import GroupMove, SubmittedMove


#: Option -> the config of the group that it sets.
CONFIGS: Final = {
    "pace": "group.moves.per.second",
    "burst": "group.moves.burst",
    "paused": "group.moves.paused",
    "order": "group.moves.order",
}
#: Refused moves whose reason an error gives; the others are counted.
_TOLD: Final = 5
#: Finished moves that `--list` prints.
_ENDED: Final = 10
#: Members that an error names if the given name is unknown or ambiguous.
_NAMED: Final = 8


def add_move(actions: Any) -> Any:
    """Add the action `move` to `kohort group`, and return its parser."""
    move = actions.add_parser(
        "move",
        help="move partitions to members, list moves, set their pace",
        description="Move each TOPIC-N to a member, or as a schedule says. The owner commits and acknowledges before "
        "the member gets it. It stays there until members or topics change and the group's assignor computes again "
        "(group.assignor=external leaves it there). The pace is a config of the group for all of its moves, also "
        "those of the assignor.",
        run=run_move,
    )
    move.add_argument("group", metavar="GROUP")
    move.add_argument("partitions", metavar="TOPIC-N", nargs="*", type=read_partition)
    move.add_argument(
        "--to", metavar="MEMBER", help="member id; or instance id or client id, where only one member has it"
    )
    move.add_argument(
        "--schedule", metavar="FILE", help="CSV with the heading topic,partition,to, or such objects in JSON; -: stdin"
    )
    move.add_argument("--list", action="store_true", help="moves in progress, and the ten latest finished ones")
    move.add_argument("--wait", action="store_true", help="exit when every member has its partitions")
    move.add_argument("--timeout", metavar="S", type=_seconds, help="with --wait: seconds to wait at most")
    move.add_argument("--dry-run", action="store_true", help="print what would be done; change nothing")
    move.add_argument("--pace", metavar="N", help="moves that begin per second; 0: all at once")
    move.add_argument("--burst", metavar="N", help="moves that may begin together after a pause")
    move.add_argument(
        "--order",
        metavar="name|lag|size",
        help="which waiting move begins next: by name, the one with most lag, or with most bytes",
    )
    pause = move.add_mutually_exclusive_group()
    pause.add_argument(
        "--pause", dest="paused", action="store_const", const="true", help="begin no move until --resume"
    )
    pause.add_argument("--resume", dest="paused", action="store_const", const="false", help="begin moves again")
    return move


def run_move(options: argparse.Namespace) -> int:
    """Validate everything, then set configs, submit the moves, and wait for them with `--wait`."""
    _check_together(options)
    asked = dict.fromkeys(options.partitions, options.to)
    if options.schedule is not None:
        from kohort.cli.verbs.schedules import read_schedule

        asked = read_schedule(options.schedule)
    configs = {CONFIGS[name]: value for name in CONFIGS if (value := getattr(options, name)) is not None}
    with open_admin(options) as admin:
        group = _described(admin, options.group)
        finder = MemberFinder(group)
        moves = {partition: finder.find(name) for partition, name in asked.items()}
        # Also without a move: a broker that lacks this API raises its error here, before anything is set.
        admin.moves(options.group)
        if configs:
            admin.alter_group_configs(options.group, configs, validate_only=True)
        if moves:
            _check_taken(admin.submit_moves(options.group, moves, validate_only=True))
        if options.dry_run:
            _show(options, group, configs, [], planned=moves)
            return 0
        if configs:
            admin.alter_group_configs(options.group, configs)
        taken = admin.submit_moves(options.group, moves) if moves else []
        _check_taken(taken, otherwise="; the others are on their way")
        if options.wait:
            patience_s = math.inf if options.timeout is None else options.timeout
            admin.wait_for_moves(options.group, taken, timeout_s=patience_s)
        if options.list:
            _show_list(options, admin.moves(options.group))
        else:
            _show(options, group, configs, taken, planned=moves)
    return 0


class MemberFinder:
    """The members of a group by every name: member id, instance id, client id."""

    def __init__(self, group: GroupDescription) -> None:
        self._group_id = group.group_id
        self._ids = {member.member_id for member in group.members}
        #: Instance id or client id -> the ids of the members that have it.
        self._called: dict[str, list[str]] = {}
        for member in group.members:
            for name in dict.fromkeys((member.instance_id, member.client_id)):
                if name:
                    self._called.setdefault(name, []).append(member.member_id)

    def find(self, name: str) -> str:
        """Return the id of the named member.

        Raises:
            ConfigError: no member has that name, or several have it.
        """
        if name in self._ids:
            return name
        found = self._called.get(name, [])
        if len(found) == 1:
            return found[0]
        if found:
            who = f"{len(found)} members of group {self._group_id}"
            raise ConfigError(f"{who} are called {name}; name one by its id: {_listed(found)}")
        raise ConfigError(f"group {self._group_id} has no member {name}; {self._hint(name)}")

    def _hint(self, name: str) -> str:
        from kohort.cli.advice import nearest

        clear = {each: found[0] for each, found in self._called.items() if len(found) == 1}
        names = [*clear, *sorted(self._ids.difference(clear.values()))]
        near = nearest(name, names)
        return f"did you mean {near}?" if near else f"it has {_listed(names) or 'none'}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _check_together(options: argparse.Namespace) -> None:
    """Refuse options that contradict each other, and options without another one that they need."""
    has_moves = bool(options.partitions) or options.schedule is not None
    if options.schedule is not None and (options.partitions or options.to is not None):
        raise ConfigError("a schedule names its partitions and members: leave TOPIC-N and --to out")
    if options.partitions and options.to is None:
        raise ConfigError(f"no member for {options.partitions[0]}: name one with --to")
    if options.to is not None and not options.partitions:
        raise ConfigError(f"which partitions is {options.to} to get? name them as TOPIC-N")
    if options.wait and (not has_moves or options.dry_run):
        raise ConfigError("--wait needs moves to wait for: name partitions, or a schedule, and no --dry-run")
    if options.timeout is not None and not options.wait:
        raise ConfigError("--timeout is for --wait")
    if not has_moves and not options.list and all(getattr(options, name) is None for name in CONFIGS):
        raise ConfigError("there is nothing to do: name partitions and --to, a --schedule, --list or a --pace")


def _described(admin: Admin, name: str) -> GroupDescription:
    group = admin.describe_group(name)
    if group.group_type != "consumer":
        raise KohortError(
            f"group {name} is a classic group, in which a member computes the assignment: only "
            "groups of the consumer protocol have moves"
        )
    return group


def _check_taken(moves: Sequence[SubmittedMove], *, otherwise: str = "; nothing was changed") -> None:
    refused = [move for move in moves if not move.is_taken]
    if not refused:
        return
    why = "; ".join(f"{move.code.name}: {move.message}" for move in refused[:_TOLD])
    more = f"; and {len(refused) - _TOLD} more" if len(refused) > _TOLD else ""
    raise KohortError(f"{len(refused)} of {len(moves)} moves cannot be made: {why}{more}{otherwise}")


def _show(
    options: argparse.Namespace,
    group: GroupDescription,
    configs: Mapping[str, str],
    taken: Sequence[SubmittedMove],
    *,
    planned: Mapping[TopicPartition, str],
) -> None:
    """Print the changed configs and the submitted moves; with `--dry-run` those that would be."""
    owners = {partition: member.member_id for member in group.members for partition in member.assignment}
    ids = {TopicPartition(move.topic, move.partition): move.move_id for move in taken}
    if options.json:
        names = ("topic", "partition", "from_member_id", "to_member_id", "move_id")
        rows = [
            dict(zip(names, (*partition, owners.get(partition), to, ids.get(partition) or None), strict=True))
            for partition, to in planned.items()
        ]
        done = {"is_dry_run": options.dry_run, "is_confirmed": options.wait, "configs": configs, "moves": rows}
        print_json(done)
        return
    for name, value in configs.items():
        print(f"{'would set' if options.dry_run else 'set'} {name}={value}")
    if planned:
        outcome = "granted" if options.wait else "would move" if options.dry_run else "moves"
        table = [
            (partition, owners.get(partition), to, "has it" if owners.get(partition) == to else outcome)
            for partition, to in planned.items()
        ]
        print_table(("PARTITION", "FROM", "TO", "STATE"), table, empty="no partition was named")


def _show_list(options: argparse.Namespace, moves: Sequence[GroupMove]) -> None:
    ended = [move for move in moves if not move.is_open]
    rows = [
        (
            f"{move.topic}-{move.partition}",
            move.from_member_id,
            move.to_member_id,
            move.phase,
            None if move.submitted_ms is None else show_clock(move.submitted_ms),
            None
            if move.begun_ms is None or move.granted_ms is None
            else show_duration(move.granted_ms - move.begun_ms),
            move.cause or None,
        )
        for move in (*(move for move in moves if move.is_open), *ended[:_ENDED])
    ]
    columns = ("PARTITION", "FROM", "TO", "PHASE", "SUBMITTED", "TOOK", "CAUSE")
    show(options, moves, columns, rows, empty="no move is in progress, and none has finished")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds from 0")
    return seconds
