"""Where the brokers are: `--bootstrap` under all its names, or KOHORT_BOOTSTRAP in the environment."""

from __future__ import annotations

import argparse
import os
from typing import Final

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
#: The variable that stands in for the option.
ENVIRONMENT: Final = "KOHORT_BOOTSTRAP"
#: What other tools call the option: understood, not advertised.
_FOREIGN_NAMES: Final = ("--brokers", "--broker", "--bootstrap-server", "--bootstrap-servers", "--broker-list")


def add_bootstrap(parser: argparse.ArgumentParser) -> None:
    """The options that every verb with a cluster has."""
    parser.add_argument(
        "-b",
        "--bootstrap",
        type=_servers,
        default=os.environ.get(ENVIRONMENT) or DEFAULT_BOOTSTRAP,
        metavar="HOST:PORT",
        help=f"address of a broker, or several with commas (default: {ENVIRONMENT} of the environment, "
        f"or {DEFAULT_BOOTSTRAP})",
    )
    parser.add_argument(
        *_FOREIGN_NAMES, dest="bootstrap", type=_servers, default=argparse.SUPPRESS, help=argparse.SUPPRESS
    )


def _servers(text: str) -> str:
    from kohort.client.options import parse_servers

    try:
        parse_servers(text)
    except ValueError as why:
        origin = f" (from {ENVIRONMENT})" if text == os.environ.get(ENVIRONMENT) else ""
        raise argparse.ArgumentTypeError(f"{why}{origin}") from why
    return text
