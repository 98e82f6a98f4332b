"""`kohort config describe|alter`: the configs of topics, brokers, groups and other resources.

Law: the value of a changed config is not printed, for it may be a secret.
Source: kafka-configs.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from kohort.cli.arguments import parse_pairs
from kohort.cli.bootstrap import open_admin
from kohort.cli.main import add_common
from kohort.cli.output import print_json, show
from kohort.errors import ConfigError

if TYPE_CHECKING:
    from kohort.client.admin.results.configs import ConfigEntry


_KINDS: Final = ("topic", "broker", "group", "client-metrics", "broker-logger")
_ALL: Final = "all"
_NAME: Final = "the topic or group, or the id of the broker; broker all: the configs that hold for all brokers"


def add_parser(subparsers: Any) -> None:
    """Add the verb to the command line."""
    config = subparsers.add_parser("config", help="configs of topics, brokers and groups: describe, alter")
    actions = config.add_subparsers(dest="action", metavar="ACTION", required=True)

    describe = actions.add_parser(
        "describe",
        help="the configs of a topic, broker, group, ...",
        description="Print the configs that were set, with --all those in force. Secrets are not shown.",
        run=run_describe,
    )
    _add_resource(describe)
    describe.add_argument("--all", action="store_true", help="also configs that have their default")
    describe.add_argument("--only", action="append", metavar="CONFIG", help="only this config; may be repeated")

    alter = actions.add_parser(
        "alter",
        help="set configs, or reset them to their defaults",
        description="Change some configs, and leave all others as they are. Either all changes are made, or none. "
        "CONFIG= resets one.",
        run=run_alter,
    )
    _add_resource(alter)
    alter.add_argument("changes", metavar="CONFIG=VALUE", nargs="*")
    alter.add_argument("--delete", action="append", default=[], metavar="CONFIG", help="reset it; may be repeated")
    alter.add_argument("--append", action="append", default=[], metavar="CONFIG=ENTRY", help="add an entry to a list")
    alter.add_argument("--subtract", action="append", default=[], metavar="CONFIG=ENTRY", help="remove one from a list")
    alter.add_argument("--validate-only", action="store_true", help="only check whether the change is possible")

    add_common(describe, alter)


def _add_resource(parser: Any) -> None:
    parser.add_argument("kind", choices=_KINDS, metavar="KIND", help=", ".join(_KINDS))
    parser.add_argument("name", metavar="NAME", help=_NAME)


def run_describe(options: argparse.Namespace) -> int:
    """Print a row for each config."""
    with open_admin(options) as admin:
        ((_, found),) = admin.describe_configs(_resource(options), options.only).items()
    rows = [row for row in found if options.all or options.only or not row.is_default]
    table = [
        (row.name, "(secret)" if row.is_sensitive else row.value, row.default, row.source, _remarks(row))
        for row in rows
    ]
    columns = ("NAME", "VALUE", "DEFAULT", "SOURCE", "REMARKS")
    return show(options, rows, columns, table, empty="no config was set; --all prints those in force")


def run_alter(options: argparse.Namespace) -> int:
    """Change configs, and print the names of those that were changed."""
    from kohort.client.admin.results.configs import ConfigResource

    given = parse_pairs(options.changes, option="config")
    changes = {name: value or None for name, value in given.items()}
    append = parse_pairs(options.append, option="--append")
    subtract = parse_pairs(options.subtract, option="--subtract")
    names = [*changes, *options.delete, *append, *subtract]
    if not names:
        raise ConfigError("there is nothing to change: give CONFIG=VALUE, --delete, --append or --subtract")
    resource = _resource(options)
    with open_admin(options) as admin:
        admin.alter_configs(
            resource,
            changes,
            delete=options.delete,
            append=append,
            subtract=subtract,
            validate_only=options.validate_only,
        )
    if options.json:
        told = {"kind": resource[0], "name": resource[1], "configs": sorted(names)}
        print_json({**told, "altered": not options.validate_only})
    else:
        done = "could alter" if options.validate_only else "altered"
        print(f"{done} {', '.join(sorted(names))} of {ConfigResource(*resource)}")
    return 0


def _resource(options: argparse.Namespace) -> tuple[str, str]:
    is_for_all = options.kind == "broker" and options.name == _ALL
    return options.kind, "" if is_for_all else options.name


def _remarks(row: ConfigEntry) -> str:
    return ", ".join([*(["read-only"] if row.is_read_only else []), *([row.idle] if row.idle else [])])
