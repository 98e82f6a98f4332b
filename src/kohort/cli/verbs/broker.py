"""`kohort broker`: the state of a broker, and the levels of its loggers.

Source: DescribeBroker, an API of kohort's own; Apache Kafka has its metrics by JMX. KIP-412 for the loggers.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from kohort.cli.bootstrap import open_admin
from kohort.cli.main import add_common
from kohort.cli.output import show
from kohort.errors import ConfigError
from kohort.metrics.peers import find_problems

if TYPE_CHECKING:
    from kohort import Admin

#: Python's names of levels -> Kafka's.
_LEVELS: Final = {"WARNING": "WARN", "CRITICAL": "FATAL"}


def add_parser(subparsers: Any) -> None:
    """Add the verb to the command line."""
    broker = subparsers.add_parser("broker", help="the state of a broker, and the levels of its loggers")
    actions = broker.add_subparsers(dest="action", metavar="ACTION", required=True)
    status = actions.add_parser(
        "status", help="version, address, counts, limits, the longest turn of the event loop", run=run_status
    )
    status.add_argument("--check", action="store_true", help="print only problems, and exit with 1 if there is one")
    level = actions.add_parser(
        "log-level",
        help="show or set the levels of a broker's loggers",
        description="Show the levels of a broker's loggers, or set some: TRACE, DEBUG, INFO, WARN, ERROR or FATAL. "
        "NAME= resets one. Levels that were set are lost when the broker stops.",
        run=run_log_level,
    )
    level.add_argument("loggers", metavar="NAME[=LEVEL]", nargs="*", help="a logger, root for all of them")
    level.add_argument("--id", metavar="NUMBER", help="the id of the broker (default: the only one)")
    add_common(status, level)


def run_status(options: argparse.Namespace) -> int:
    """Print the broker's description of itself."""
    with open_admin(options) as admin:
        facts = admin.describe_broker()
    if options.check:
        found = [each.said for each in find_problems(facts)]
        show(options, found, ("WRONG",), [(each,) for each in found], empty="nothing is wrong")
        return 1 if found else 0
    rows = [(name, value or "-") for name, value in facts.items()]
    return show(options, facts, ("FACT", "VALUE"), rows, empty="the broker sent no facts")


def run_log_level(options: argparse.Namespace) -> int:
    """Set the given levels, and print the levels of the named loggers (default: of all)."""
    names = [each.partition("=")[0] for each in options.loggers]
    if not all(names):
        raise ConfigError("a logger needs a name: NAME or NAME=LEVEL is expected")
    changes = dict(_change(each) for each in options.loggers if "=" in each)
    with open_admin(options) as admin:
        resource = ("broker-logger", options.id or _only_broker(admin))
        if changes:
            admin.alter_configs(resource, changes)
        ((_, found),) = admin.describe_configs(resource, names or None).items()
    if missing := sorted(set(names) - {row.name for row in found}):
        raise ConfigError(f"the broker has no logger {', '.join(missing)}: kohort broker log-level names all")
    rows = [{"logger": row.name, "level": row.value} for row in found]
    return show(options, rows, ("LOGGER", "LEVEL"), [tuple(row.values()) for row in rows], empty="it has no loggers")


def _change(given: str) -> tuple[str, str | None]:
    name, _, level = given.partition("=")
    level = level.strip().upper()
    return name, _LEVELS.get(level, level) or None


def _only_broker(admin: Admin) -> str:
    brokers = [str(each.broker_id) for each in admin.describe_cluster().brokers]
    if len(brokers) != 1:
        raise ConfigError(f"the cluster has the brokers {', '.join(brokers)}: choose one by --id")
    return brokers[0]
