"""`python -m kohort.broker`: one broker in this process, as `Broker(process=True)` starts it.

It prints `ready HOST:PORT`, with NAME=HOST:PORT for each further listener, or `error` and why it cannot start;
`kohort up` is the same for people.
"""

from __future__ import annotations

import argparse
import sys

from kohort.broker.embedded import Given, serve_in_foreground, tell_addresses
from kohort.broker.options.configfile import FILE_LIMIT_BYTES
from kohort.errors import KohortError


def main(arguments: list[str] | None = None) -> int:
    """Serve until the broker is told to stop; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m kohort.broker", allow_abbrev=False)
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    parser.add_argument("--data-dir")
    parser.add_argument("--config", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--given-by-stdin", action="store_true", help="take all of these as a line of JSON instead")
    parser.add_argument("--stop-on-eof", action="store_true", help="stop when standard input ends")
    options = parser.parse_args(arguments)
    if options.given_by_stdin:
        given = Given.of_line(sys.stdin.readline(FILE_LIMIT_BYTES))
    else:
        config = dict(pair.split("=", 1) for pair in options.config)
        given = Given(config=config, host=options.host, port=options.port, data_dir=options.data_dir)
    try:
        return serve_in_foreground(
            data_dir=given.data_dir,
            host=given.host,
            port=given.port,
            config=given.config,
            on_ready=lambda addresses: _say(f"ready {tell_addresses(addresses)}"),
            stop_on_eof=options.stop_on_eof,
        )
    except KohortError as why:
        _say(f"error {why}")
        return 1


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
