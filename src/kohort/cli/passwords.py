"""Passwords for the verbs: from a file, an environment variable or a terminal, never from arguments."""

from __future__ import annotations

import argparse
import os
import sys
from getpass import getpass
from pathlib import Path
from typing import Any, Final

from kohort.cli.arguments import input_name
from kohort.errors import ConfigError

_MOST_BYTES: Final = 64 * 1024


def add_password_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name the source of a password."""
    source: Any = parser.add_mutually_exclusive_group()
    source.add_argument("--password-file", metavar="FILE", help="its first line is the password (-: standard input)")
    source.add_argument("--password-env", metavar="NAME", help="the environment variable with the password")
    parser.add_argument("--password", "-p", dest="shown", help=argparse.SUPPRESS)


def refuse_shown_password(options: argparse.Namespace) -> None:
    """Refuse a password on the command line."""
    if options.shown is not None:
        raise ConfigError(
            "a command line is seen by others: give a password by --password-file FILE or --password-env NAME"
        )


def password_of(options: argparse.Namespace, user: str) -> str:
    """Return the password from the options' source, without the end of its line.

    Raises:
        ConfigError: no password was given, or it is not text.
        OSError: a file cannot be read.
    """
    if options.password_env is not None:
        return password_in_environment(options.password_env, "--password-env")
    if options.password_file is None:
        return _asked(user)
    return password_in_file(options.password_file)


def password_in_environment(name: str, option: str) -> str:
    """Return the password in an environment variable; `option` names the variable, for the error."""
    found = os.environ.get(name)
    if found is None:
        raise ConfigError(f"the environment has no {name}, which {option} names")
    return found


def password_in_file(path: str) -> str:
    """Return the first line of a file; `-` is the standard input."""
    if path == "-":
        data = sys.stdin.buffer.readline(_MOST_BYTES + 1)
    else:
        with Path(path).open("rb") as file:
            data = file.readline(_MOST_BYTES + 1)
    name = input_name(path)
    if len(data) > _MOST_BYTES:
        raise ConfigError(f"the first line of {name} is longer than {_MOST_BYTES} bytes: that is no password")
    try:
        return data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise ConfigError(f"the first line of {name} is not UTF-8: a password is text") from None


def _asked(user: str) -> str:
    if not sys.stdin.isatty():
        raise ConfigError("there is no terminal to type a password: use --password-file FILE or --password-env NAME")
    first = getpass(f"Password of {user}: ", stream=sys.stderr)
    if getpass("Again: ", stream=sys.stderr) != first:
        raise ConfigError("the two passwords are not the same; nothing is changed")
    return first
