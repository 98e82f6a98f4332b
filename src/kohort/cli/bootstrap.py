"""The brokers' addresses and the login: `--bootstrap`, `--command-config`, `-X`, or the environment.

Laws: the command line goes before a file, a file before the environment. No error shows a value.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any, Final

from kohort.errors import ConfigError

if TYPE_CHECKING:
    from kohort import Admin

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
#: The environment variables that are used if the options are not given.
ENVIRONMENT: Final = "KOHORT_BOOTSTRAP"
ENVIRONMENT_FILE: Final = "KOHORT_COMMAND_CONFIG"
#: Names of the option in other tools: accepted, but not shown in the help.
_FOREIGN_NAMES: Final = ("--brokers", "--broker", "--bootstrap-server", "--bootstrap-servers", "--broker-list")
_FOREIGN_FILES: Final = ("-F", "--consumer.config", "--producer.config")


def add_bootstrap(parser: argparse.ArgumentParser) -> None:
    """Add the options of every verb that connects to a cluster."""
    parser.add_argument(
        "-b",
        "--bootstrap",
        type=_servers,
        metavar="HOST:PORT",
        help=f"address of a broker, or several with commas (default: {ENVIRONMENT} of the environment, "
        f"or {DEFAULT_BOOTSTRAP})",
    )
    parser.add_argument(
        *_FOREIGN_NAMES, dest="bootstrap", type=_servers, default=argparse.SUPPRESS, help=argparse.SUPPRESS
    )
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        help="client options, properties or TOML: security.protocol, sasl.username and so on "
        f"(default: {ENVIRONMENT_FILE} of the environment, or none)",
    )
    parser.add_argument(*_FOREIGN_FILES, dest="command_config", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    parser.add_argument(
        "-X", dest="client_options", action="append", default=[], metavar="NAME=VALUE", help="one such option"
    )


def settle_connection(options: argparse.Namespace) -> None:
    """Set `bootstrap`, the brokers' addresses, and `settings`, the client options, from the given options.

    Raises:
        ConfigError: a file cannot be read, or no client has such an option.
    """
    if "command_config" not in options:
        return
    from kohort.broker.options.configfile import load_config_file
    from kohort.cli.arguments import parse_pairs
    from kohort.client.options import ADMIN_OPTIONS, CONSUMER_OPTIONS, PRODUCER_OPTIONS

    path = options.command_config or os.environ.get(ENVIRONMENT_FILE)
    given: dict[str, object] = {**load_config_file(path).values} if path else {}
    settings: dict[str, Any] = {}
    for name, value in {**given, **parse_pairs(options.client_options, option="-X")}.items():
        if name in ADMIN_OPTIONS:
            settings[ADMIN_OPTIONS.option(name).name] = value
        elif name not in CONSUMER_OPTIONS and name not in PRODUCER_OPTIONS:
            # The file may be for other programs, too; an option that no client of kohort's has raises an error here.
            ADMIN_OPTIONS.option(name)
    servers = settings.pop("bootstrap.servers", None)
    if options.bootstrap is None:
        options.bootstrap = _checked(servers or os.environ.get(ENVIRONMENT) or DEFAULT_BOOTSTRAP)
    options.settings = settings


def _checked(servers: object) -> str:
    try:
        return _servers(str(servers))
    except argparse.ArgumentTypeError as why:
        raise ConfigError(str(why)) from None


def connection(options: argparse.Namespace) -> dict[str, Any]:
    """Return the client options for connections to the brokers of a command line."""
    return {**getattr(options, "settings", {}), "bootstrap.servers": options.bootstrap}


def open_admin(options: argparse.Namespace) -> Admin:
    """Connect an admin client to the brokers of a command line."""
    from kohort import Admin

    return Admin(connection(options))


def _servers(text: str) -> str:
    from kohort.client.option_kinds import parse_servers

    try:
        parse_servers(text)
    except ValueError as why:
        origin = f" (from {ENVIRONMENT})" if text == os.environ.get(ENVIRONMENT) else ""
        raise argparse.ArgumentTypeError(f"{why}{origin}") from why
    return text
