"""The command `kohort`: each verb is a module, and each error is printed as one sentence.

Exit codes: 0, 1 (failed), 2 (wrong arguments or options), 130 (Ctrl-C).
"""

from __future__ import annotations

import argparse
import errno
import io
import json
import logging
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

from kohort import __version__
from kohort.base import without_collections
from kohort.cli.bootstrap import add_bootstrap, settle_connection
from kohort.cli.output import complain
from kohort.cli.parser import Parser, instead_of_words
from kohort.errors import ConfigError, KohortError
from kohort.records.kernel_form import tell_kernels

VERBS = (
    *("up", "topic", "send", "tail", "group", "config", "acl", "user", "token", "quota", "cluster", "transactions"),
    *("tls", "log", "broker", "metrics", "console", "top", "report", "demo", "completion"),
)
#: The output of `kohort` alone.
WELCOME: Final = """\
kohort: Kafka consumer groups for Python and PySpark. Start here:

  kohort up                              a broker on port 9092, until Ctrl-C
and in another terminal:
  seq 1 10 | kohort send orders          ten records
  kohort tail orders --from beginning    read them, and new ones
  kohort group list                      groups, their members and lag
or all of it in one command, while a member is killed:
  kohort demo

kohort --help lists every verb, kohort VERB --help explains one.
"""


def build_parser(verbs: Sequence[str] = VERBS) -> argparse.ArgumentParser:
    """Build the parser of the whole command; only the modules of `verbs` are loaded."""
    parser = Parser(
        prog="kohort",
        description="Kafka consumer groups for Python and PySpark: a broker, a client and a Spark source.",
    )
    parser.add_argument(
        "--version",
        action="version",
        version=f"kohort {__version__}, kernels: {tell_kernels()}",
        help="show the version and the form of the kernels, with --json as JSON, and exit",
    )
    subparsers = parser.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=Parser)
    for verb in verbs:
        room = "kohort.cli" if verb in {"demo", "report"} else "kohort.cli.verbs"
        import_module(f"{room}.{verb}").add_parser(subparsers)
    return parser


def add_common(*parsers: argparse.ArgumentParser) -> None:
    """Add the options of every verb that prints data of a cluster."""
    for parser in parsers:
        add_bootstrap(parser)
        add_json(parser)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option of every verb that prints data."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def add_execute(parser: argparse.ArgumentParser, *, done: str = "changed") -> None:
    """Add `--execute`, the option of every verb that shows its changes first."""
    parser.add_argument("--execute", action="store_true", help=f"make the change; without it nothing is {done}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code.

    Without `arguments` the command line of this process is run, and its standard streams are prepared.
    """
    if arguments is None:
        prepare_streams()
        _listen_to_client()
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _run(words)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return 130
    except OutputError as why:
        abandon_output()
        if why.errno == errno.EPIPE:
            # The reader of the output has exited (`| head`), which is no error.
            return 0
        complain(why)
        return 1


def exit_code(why: BaseException) -> int:
    """Return the exit code of a verb that failed for this reason."""
    return 2 if isinstance(why, ConfigError) else 1


def _run(words: Sequence[str]) -> int:
    if not words:
        sys.stdout.write(WELCOME)
        return 0
    if sorted(words) == ["--json", "--version"]:
        sys.stdout.write(json.dumps({"version": __version__, "kernels": tell_kernels()}) + "\n")
        return 0
    instead = instead_of_words(words)
    if instead is not None:
        complain(instead)
        return 2
    options = _parse(words)
    try:
        settle_connection(options)
        code: int = options.run(options)
        return code
    except OutputError:
        raise
    except (KohortError, OSError) as why:
        from kohort.cli.advice import explain

        complain(explain(why, options))
        return exit_code(why)


def _parse(words: Sequence[str]) -> argparse.Namespace:
    verbs = [words[0]] if words[0] in VERBS else VERBS
    try:
        with without_collections():
            parser = build_parser(verbs)
        return parser.parse_args(words)
    except SystemExit:
        # argparse may have written its help, to an output that may be full; `flush` shows that.
        sys.stdout.flush()
        raise


class _Voice(logging.Handler):
    """A log handler that prints the client's log lines like errors of the command line."""

    def emit(self, record: logging.LogRecord) -> None:
        complain(record.getMessage())


def _listen_to_client() -> None:
    log = logging.getLogger("kohort.client")
    log.propagate = False
    log.addHandler(_Voice())
    if sys.argv[1:2] != ["up"]:
        # Only `kohort --version` and `kohort broker status` print the form of the kernels.
        kernels = logging.getLogger("kohort.kernels")
        kernels.propagate = False
        kernels.addHandler(logging.NullHandler())


# Laws of the standard streams: a closed one (`>&-`) becomes /dev/null; a character that the terminal's encoding lacks
# is written as an escape; only a failed write to the standard output raises `OutputError`.
#: Name in `sys` -> mode of opening; in the order of their file descriptors, so that each gets its own.
_STREAMS: Final = {"stdin": "r", "stdout": "w", "stderr": "w"}


class OutputError(OSError):
    """The standard output cannot be written: disk full, reader exited, or not open for writing."""

    def __str__(self) -> str:
        return f"cannot write the output: {(self.strerror or 'unknown reason').lower()}"


class _Output(io.FileIO):
    """The standard output, whose failed writes raise `OutputError`."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as why:
            raise OutputError(why.errno, why.strerror) from why


def prepare_streams() -> None:
    """Make the three standard streams usable; only for a process that runs the command itself."""
    out = sys.stdout
    for name, mode in _STREAMS.items():
        if getattr(sys, name) is None:
            # For the rest of the process.
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
    if isinstance(out, io.TextIOWrapper):
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(_Output(out.fileno(), "wb", closefd=False)),
            encoding=out.encoding,
            errors="backslashreplace",
            # Even if Python is unbuffered (`-u`) whole lines are buffered: programs read whole lines anyway.
            line_buffering=out.line_buffering or out.write_through,
        )


def abandon_output() -> None:
    """Discard the buffered output."""
    # Python would try to write it at exit, and print another error.
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, sys.stdout.fileno())
    os.close(sink)


if __name__ == "__main__":
    sys.exit(main())
