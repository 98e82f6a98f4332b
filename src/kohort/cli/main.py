"""The command `kohort`: one verb a file, one sentence an error, exit codes 0, 1 (failed) and 2 (asked wrongly)."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NoReturn

from kohort import __version__
from kohort.cli.output import complain
from kohort.errors import ConfigError, KohortError

VERBS = ("up", "topic", "send", "tail", "group", "demo")

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


class Parser(argparse.ArgumentParser):
    """argparse, but an error is one sentence, and an unknown word is answered with the nearest known one."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse's; what is left over is refused by the verb that does not know it, not by the whole command."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return parsed, unknown

    def error(self, message: str) -> NoReturn:
        complain(message + self._hint(message))
        sys.exit(2)

    def _hint(self, message: str) -> str:
        known = [option for action in self._actions for option in action.option_strings]
        known += [str(choice) for action in self._actions for choice in (action.choices or ())]
        near = [hit for word in unknown_words(message) for hit in get_close_matches(word, known, n=1, cutoff=0.65)]
        return f"; did you mean {near[0]}?" if near else f"; see {self.prog} --help"


def unknown_words(message: str) -> list[str]:
    """The words that argparse complains about: a wrong choice, or the options among unrecognized arguments."""
    choice = re.search(r"invalid choice: '(.*?)' \(choose from", message)
    if choice:
        return [choice[1]]
    _, found, rest = message.partition("unrecognized arguments: ")
    return [word.partition("=")[0] for word in rest.split() if word.startswith("-")] if found else []


def build_parser(verbs: Sequence[str] = VERBS) -> argparse.ArgumentParser:
    """The parser of the whole command; loads the modules of `verbs` only."""
    parser = Parser(
        prog="kohort",
        description="Kafka consumer groups for Python and PySpark: a broker, a client and a Spark source.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"kohort {__version__}")
    subparsers = parser.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=Parser)
    for verb in verbs:
        import_module(f"kohort.cli.{verb}").add_parser(subparsers)
    return parser


def add_bootstrap(parser: argparse.ArgumentParser) -> None:
    """The options that every verb with a cluster has."""
    parser.add_argument(
        "--bootstrap",
        default=DEFAULT_BOOTSTRAP,
        metavar="HOST:PORT",
        help=f"address of a broker, or several with commas (default {DEFAULT_BOOTSTRAP})",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """The option of every verb that prints data."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def parse_pairs(pairs: Sequence[str], *, option: str) -> dict[str, str]:
    """`NAME=VALUE` arguments as a mapping; `ConfigError` for one without `=`."""
    parsed = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"{option} {pair!r} is not NAME=VALUE")
        parsed[name.strip()] = value.strip()
    return parsed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    verbs = [words[0]] if words and words[0] in VERBS else VERBS
    options = build_parser(verbs).parse_args(words)
    try:
        code: int = options.run(options)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader of our output has gone (`| head`): that is an end, not an error.
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        return 130
    except (KohortError, OSError) as why:
        complain(why)
        return 2 if isinstance(why, ConfigError) else 1


if __name__ == "__main__":
    sys.exit(main())
