"""`kohort group static|dynamic|rebalance GROUP`: static or dynamic membership, and one rebalance now.

Source: KIP-345 as drafted; requirement S3.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from kohort.cli.bootstrap import connection
from kohort.cli.output import print_json
from kohort.cli.words import parse_duration
from kohort.journal.words import show_duration

if TYPE_CHECKING:
    from kohort import Admin

_REGISTRATION = "group.registration.timeout.ms"
_EXPANSION = "group.expansion.timeout.ms"


def add_membership(actions: Any) -> tuple[Any, ...]:
    """Add the three actions to those of `kohort group`; their parsers."""
    static = actions.add_parser(
        "static",
        help="members keep what they have while they are away; new ones are taken in together",
        description="Make a group static, whose members all need a name (group.instance.id), or change its timeouts. "
        "A member that is away keeps its partitions for the registration timeout; new members wait, from the first one "
        "on, for the expansion timeout, and get something in one rebalance.",
        allow_abbrev=False,
    )
    static.add_argument("group", metavar="GROUP")
    static.add_argument(
        "--registration-timeout",
        metavar="SPAN",
        type=parse_duration,
        help="keep what an offline member has for so long: 15m, 2h (by default as it is set, 30 minutes at first)",
    )
    static.add_argument(
        "--expansion-timeout",
        metavar="SPAN",
        type=parse_duration,
        help="gather new members for so long: 30s, 5m (by default as it is set, 5 minutes at first)",
    )
    static.set_defaults(run=run_static)

    dynamic = actions.add_parser(
        "dynamic",
        help="a static group goes by sessions again",
        description="End what `kohort group static` has begun: no client has to be changed, names stay, and sessions "
        "begin anew.",
        allow_abbrev=False,
    )
    dynamic.add_argument("group", metavar="GROUP")
    dynamic.set_defaults(run=run_dynamic)

    rebalance = actions.add_parser(
        "rebalance",
        help="have a static group share its partitions out now",
        description="One rebalance of a static group now, among all that are online; new members do not wait any "
        "longer.",
        allow_abbrev=False,
    )
    rebalance.add_argument("group", metavar="GROUP")
    rebalance.set_defaults(run=run_rebalance)
    return static, dynamic, rebalance


def run_static(options: argparse.Namespace) -> int:
    """Make the group static, then print its timeouts."""
    from kohort import Admin

    with Admin(connection(options)) as admin:
        admin.enable_static_membership(options.group, options.registration_timeout, options.expansion_timeout)
        registration_ms, expansion_ms = _timeouts(admin, options.group)
    if options.json:
        timeouts = {"registration_timeout_ms": registration_ms, "expansion_timeout_ms": expansion_ms}
        print_json({"group": options.group, "is_static": True, **timeouts})
    else:
        print(
            f"{options.group} is static: offline members keep what they have for {show_duration(registration_ms)}, "
            f"new ones are gathered for {show_duration(expansion_ms)}"
        )
    return 0


def run_dynamic(options: argparse.Namespace) -> int:
    """Make the group dynamic."""
    from kohort import Admin

    with Admin(connection(options)) as admin:
        admin.enable_dynamic_membership(options.group)
    if options.json:
        print_json({"group": options.group, "is_static": False})
    else:
        print(f"{options.group} is dynamic: its members live by their sessions")
    return 0


def run_rebalance(options: argparse.Namespace) -> int:
    """Force a rebalance."""
    from kohort import Admin

    with Admin(connection(options)) as admin:
        admin.force_rebalance(options.group)
    if options.json:
        print_json({"group": options.group, "is_forced": True})
    else:
        print(f"{options.group} rebalances now; kohort group why {options.group} tells what moves")
    return 0


def _timeouts(admin: Admin, group: str) -> tuple[int, int]:
    configs = {config.name: config.value for config in admin.describe_group_configs(group)}
    registration, expansion = (int(configs[name] or -1) for name in (_REGISTRATION, _EXPANSION))
    return registration, expansion
