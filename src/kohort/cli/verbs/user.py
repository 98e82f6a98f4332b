"""`kohort user list|set-password|remove`: users that log in by SCRAM.

Laws: a password is on no command line and in no output; without `--execute` no user is removed.
Source: kafka-configs (`--entity-type users`), rpk's `security user`.
"""

from __future__ import annotations

import argparse
import os
import sys
from getpass import getpass
from pathlib import Path
from typing import Any, Final

from kohort.cli.arguments import input_name
from kohort.cli.bootstrap import open_admin
from kohort.cli.main import add_common, add_execute
from kohort.cli.output import print_json, show, show_plan
from kohort.errors import ConfigError

_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_MOST_BYTES: Final = 64 * 1024
_COLUMNS: Final = ("USER", "MECHANISM", "ITERATIONS")


def add_parser(subparsers: Any) -> None:
    """Add the verb to the command line."""
    user = subparsers.add_parser("user", help="users with SCRAM credentials: list, set-password, remove")
    actions = user.add_subparsers(dest="action", metavar="ACTION", required=True)

    listing = actions.add_parser("list", help="users and the mechanisms that they log in by", run=run_list)
    listing.add_argument("users", metavar="USER", nargs="*", help="only these")

    change = actions.add_parser(
        "set-password",
        help="make a user, or change its password",
        description="The password comes from a file, a variable of the environment, or is asked for. It is salted "
        "here: the broker does not see it. A logged-in user stays so.",
        run=run_set_password,
    )
    change.add_argument("user", metavar="USER")
    source = change.add_mutually_exclusive_group()
    source.add_argument("--password-file", metavar="FILE", help="whose first line it is (-: the standard input)")
    source.add_argument("--password-env", metavar="NAME", help="the variable that has it")
    change.add_argument("--password", "-p", dest="shown", help=argparse.SUPPRESS)
    change.add_argument(
        "--iterations", type=int, default=8192, metavar="N", help="rounds, 4096 to 16384 (default: 8192)"
    )

    remove = actions.add_parser(
        "remove",
        help="take passwords away",
        description="Show the passwords of users, and with --execute take them away. Who is logged in stays so until "
        "its connection or session ends.",
        run=run_remove,
    )
    remove.add_argument("users", metavar="USER", nargs="+")
    add_execute(remove)

    for parser, what in ((change, "default: SCRAM-SHA-512"), (remove, "default: both")):
        parser.add_argument(
            "--mechanism", dest="mechanisms", action="append", choices=_MECHANISMS, help=f"may be repeated ({what})"
        )
    add_common(listing, change, remove)


def run_list(options: argparse.Namespace) -> int:
    """Print the users by name."""
    with open_admin(options) as admin:
        found = admin.describe_user_scram_credentials(options.users or None)
    return show(options, found, _COLUMNS, _rows(found), empty="no users that log in by SCRAM")


def run_set_password(options: argparse.Namespace) -> int:
    """Set one password for each mechanism."""
    from kohort import ScramCredential

    if options.shown is not None:
        raise ConfigError(
            "a command line is seen by others: --password-file FILE or --password-env NAME has a password"
        )
    mechanisms = list(dict.fromkeys(options.mechanisms or ["SCRAM-SHA-512"]))
    with open_admin(options) as admin:
        password = _password(options)
        admin.alter_user_scram_credentials(
            ScramCredential(user=options.user, password=password, mechanism=each, iterations=options.iterations)
            for each in mechanisms
        )
    if options.json:
        print_json({"user": options.user, "mechanisms": mechanisms, "iterations": options.iterations})
    else:
        print(f"{options.user} can log in by {' and '.join(mechanisms)}")
    return 0


def run_remove(options: argparse.Namespace) -> int:
    """Show the users' passwords to be removed, and remove them with `--execute`."""
    with open_admin(options) as admin:
        there = admin.describe_user_scram_credentials(options.users)
        chosen = [each for each in there if not options.mechanisms or each.mechanism in options.mechanisms]
        if options.execute:
            admin.alter_user_scram_credentials(deletions=chosen)
    shown = {"executed": options.execute, "credentials": chosen}
    return show_plan(options, shown, _COLUMNS, _rows(chosen), empty="no such passwords")


def _rows(credentials: Any) -> list[tuple[object, ...]]:
    return [(each.user, each.mechanism, each.iterations) for each in credentials]


def _password(options: argparse.Namespace) -> str:
    """Return the given password, without the end of its line.

    Raises:
        ConfigError: nothing was given, or nothing that is text.
        OSError: a file cannot be read.
    """
    if options.password_env is not None:
        found = os.environ.get(options.password_env)
        if found is None:
            raise ConfigError(f"the environment has no {options.password_env}, which --password-env names")
        return found
    if options.password_file is None:
        return _asked(options.user)
    if options.password_file == "-":
        data = sys.stdin.buffer.readline(_MOST_BYTES + 1)
    else:
        with Path(options.password_file).open("rb") as file:
            data = file.readline(_MOST_BYTES + 1)
    name = input_name(options.password_file)
    if len(data) > _MOST_BYTES:
        raise ConfigError(f"the first line of {name} is longer than {_MOST_BYTES} bytes: that is no password")
    try:
        return data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise ConfigError(f"the first line of {name} is not UTF-8: a password is text") from None


def _asked(user: str) -> str:
    if not sys.stdin.isatty():
        raise ConfigError("there is no terminal to type a password: --password-file FILE or --password-env NAME has it")
    first = getpass(f"Password of {user}: ", stream=sys.stderr)
    if getpass("Again: ", stream=sys.stderr) != first:
        raise ConfigError("the two passwords are not the same; nothing is changed")
    return first
