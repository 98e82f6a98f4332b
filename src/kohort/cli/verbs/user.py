"""`kohort user list|set-password|add|remove`: SCRAM users, and users in a file for SASL/PLAIN.

Laws: no command line and no output has a password; without `--execute` no user is removed.
Source: kafka-configs (`--entity-type users`), rpk's `security user`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from kohort.cli.bootstrap import open_admin
from kohort.cli.main import add_common, add_execute
from kohort.cli.output import print_json, show, show_plan
from kohort.cli.passwords import add_password_options, password_of, refuse_shown_password
from kohort.errors import ConfigError

_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_COLUMNS: Final = ("USER", "MECHANISM", "ITERATIONS")
_FILE_HELP: Final = "a broker's file of users for SASL/PLAIN (sasl.plain.users.file), instead of a broker's SCRAM users"


def add_parser(subparsers: Any) -> None:
    """Add the verb to the command line."""
    user = subparsers.add_parser("user", help="users with passwords: list, set-password, add, remove")
    actions = user.add_subparsers(dest="action", metavar="ACTION", required=True)

    listing = actions.add_parser("list", help="users and the mechanisms that they log in by", run=run_list)
    listing.add_argument("users", metavar="USER", nargs="*", help="only these")
    listing.add_argument("--file", metavar="FILE", help=_FILE_HELP)

    change = actions.add_parser(
        "set-password",
        help="make a user, or change its password",
        description="The password comes from a file, an environment variable, or a prompt. It is salted "
        "by this command: the broker does not see it. A user that is logged in stays logged in.",
        run=run_set_password,
    )
    change.add_argument("user", metavar="USER")
    add_password_options(change)
    change.add_argument(
        "--iterations", type=int, default=8192, metavar="N", help="rounds, 4096 to 16384 (default: 8192)"
    )

    add = actions.add_parser(
        "add",
        help="make a user in a file for SASL/PLAIN, or change its password",
        description="The file has a salted hash of the password, and is made if it is missing. A broker reads it "
        "again when it changes. A user that is logged in stays logged in.",
        run=run_add,
    )
    add.add_argument("user", metavar="USER")
    add.add_argument("--file", metavar="FILE", help="sasl.plain.users.file of a broker")
    add_password_options(add)
    add.add_argument("--iterations", type=int, metavar="N", help="rounds of PBKDF2-HMAC-SHA-256 (default: 100000)")

    remove = actions.add_parser(
        "remove",
        help="remove passwords of users",
        description="Show whose passwords would be removed, and with --execute remove them. A broker of kohort closes "
        "the connections of such a user; at other brokers such users stay logged in until connection or session end.",
        run=run_remove,
    )
    remove.add_argument("users", metavar="USER", nargs="+")
    remove.add_argument("--file", metavar="FILE", help=_FILE_HELP)
    add_execute(remove)

    for parser, what in ((change, "default: SCRAM-SHA-512"), (remove, "default: both")):
        parser.add_argument(
            "--mechanism", dest="mechanisms", action="append", choices=_MECHANISMS, help=f"may be repeated ({what})"
        )
    add_common(listing, change, remove, add)


def run_list(options: argparse.Namespace) -> int:
    """Print the users by name."""
    if options.file is not None:
        from kohort.security.plain_users import read_users

        known = read_users(options.file)
        rows = [(name, "PLAIN", each.iterations) for name, each in sorted(known.items())]
        chosen = [row for row in rows if not options.users or row[0] in options.users]
        shown = [{"user": name, "mechanism": mechanism, "iterations": rounds} for name, mechanism, rounds in chosen]
        return show(options, shown, _COLUMNS, chosen, empty="no users in the file")
    with open_admin(options) as admin:
        found = admin.describe_user_scram_credentials(options.users or None)
    return show(options, found, _COLUMNS, _rows(found), empty="no users that log in by SCRAM")


def run_set_password(options: argparse.Namespace) -> int:
    """Set the password of a user for each chosen mechanism."""
    from kohort import ScramCredential

    refuse_shown_password(options)
    mechanisms = list(dict.fromkeys(options.mechanisms or ["SCRAM-SHA-512"]))
    with open_admin(options) as admin:
        password = password_of(options, options.user)
        admin.alter_user_scram_credentials(
            ScramCredential(user=options.user, password=password, mechanism=each, iterations=options.iterations)
            for each in mechanisms
        )
    if options.json:
        print_json({"user": options.user, "mechanisms": mechanisms, "iterations": options.iterations})
    else:
        print(f"{options.user} can log in by {' and '.join(mechanisms)}")
    return 0


def run_add(options: argparse.Namespace) -> int:
    """Add a user to a file for SASL/PLAIN, or change the user's password."""
    from kohort.security.plain_users import (
        ITERATIONS,
        LEAST_ITERATIONS,
        MOST_ITERATIONS,
        PasswordHash,
        check_username,
        read_users,
        write_users,
    )
    from kohort.security.sasl import unsendable
    from kohort.security.sasl_server import LONGEST_PASSWORD_BYTES

    refuse_shown_password(options)
    if options.file is None:
        raise ConfigError(
            "kohort user add makes a user in a broker's file: --file FILE; a user that logs in by SCRAM "
            f"is made by kohort user set-password {options.user[:60]!r}"
        )
    name = check_username(options.user)
    rounds = ITERATIONS if options.iterations is None else options.iterations
    if not LEAST_ITERATIONS <= rounds <= MOST_ITERATIONS:
        raise ConfigError(f"--iterations cannot be {rounds}: {LEAST_ITERATIONS} to {MOST_ITERATIONS} is expected")
    users = read_users(options.file) if Path(options.file).exists() else {}
    password = password_of(options, name)
    if not password or (why := unsendable(password)) is not None:
        raise ConfigError(f"the password of {name} {why if password else 'is empty'}")
    if len(password.encode()) > LONGEST_PASSWORD_BYTES:
        raise ConfigError(f"the password of {name} is longer than {LONGEST_PASSWORD_BYTES} bytes")
    is_new = name not in users
    write_users(options.file, users | {name: PasswordHash.of(password.encode(), iterations=rounds)})
    if options.json:
        print_json({"user": name, "file": options.file, "iterations": rounds, "new": is_new})
    else:
        print(f"{name} can log in by PLAIN, {'a new user' if is_new else 'with a new password'} of {options.file}")
    return 0


def run_remove(options: argparse.Namespace) -> int:
    """Show the users' passwords to be removed, and remove them with `--execute`."""
    if options.file is not None:
        return _remove_from_file(options)
    with open_admin(options) as admin:
        there = admin.describe_user_scram_credentials(options.users)
        chosen = [each for each in there if not options.mechanisms or each.mechanism in options.mechanisms]
        if options.execute:
            admin.alter_user_scram_credentials(deletions=chosen)
    shown = {"executed": options.execute, "credentials": chosen}
    return show_plan(options, shown, _COLUMNS, _rows(chosen), empty="no such passwords")


def _remove_from_file(options: argparse.Namespace) -> int:
    from kohort.security.plain_users import read_users, write_users

    known = read_users(options.file)
    chosen = [name for name in known if name in options.users]
    if options.execute and chosen:
        write_users(options.file, {name: each for name, each in known.items() if name not in chosen})
    rows = [(name, "PLAIN", known[name].iterations) for name in chosen]
    shown = {
        "executed": options.execute,
        "credentials": [{"user": name, "mechanism": how, "iterations": rounds} for name, how, rounds in rows],
    }
    return show_plan(options, shown, _COLUMNS, rows, empty="no such users in the file")


def _rows(credentials: Any) -> list[tuple[object, ...]]:
    return [(each.user, each.mechanism, each.iterations) for each in credentials]
