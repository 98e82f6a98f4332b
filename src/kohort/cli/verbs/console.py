"""`kohort console`: groups, members and rebalances of any cluster, in a browser."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import threading
from typing import Any, Final

from kohort.cli.bootstrap import add_bootstrap, connection
from kohort.cli.output import say
from kohort.cli.passwords import password_in_file
from kohort.errors import ConfigError

#: The address of the console without `--listen`.
DEFAULT_LISTEN: Final = "127.0.0.1:9080"


def add_parser(subparsers: Any) -> None:
    """Add the verb to the command line."""
    console = subparsers.add_parser(
        "console",
        help="owners, lag and rebalances of groups, in a browser",
        description="Serve a web console of a cluster, kohort's or Apache Kafka's, until Ctrl-C. It shows what its own "
        "login may see. On an address that other machines can reach, it asks visitors for a login.",
        run=run,
    )
    add_bootstrap(console)
    console.add_argument(
        "--listen", metavar="HOST:PORT", default=DEFAULT_LISTEN, help="the address to serve (default: %(default)s)"
    )
    console.add_argument(
        "--users",
        action="store_true",
        help="ask each visitor for name and password of a user of the cluster, and show and do what that user may",
    )
    console.add_argument(
        "--token-file",
        metavar="FILE",
        help="a file whose first line is the token that visitors log in with (default: a new one, printed)",
    )
    console.add_argument(
        "--http-changes",
        action="store_true",
        help="let visitors reset offsets, move partitions, set configs, remove members and delete groups, as far as "
        "their login may (default: the console only shows)",
    )
    console.add_argument("--certificate", metavar="FILE", help="serve HTTPS with this certificate, PEM")
    console.add_argument("--key", metavar="FILE", help="the key of the certificate, PEM (default: in the same file)")


def run(options: argparse.Namespace) -> int:
    """Serve the console until Ctrl-C or SIGTERM."""
    from kohort.console import INSTALL, has_extra

    if not has_extra():
        raise ConfigError(f"the console needs packages that are not installed: {INSTALL}")
    from kohort.broker.connections.sockets import is_loopback, listen_on
    from kohort.broker.options.listeners import address
    from kohort.broker.options.settings import BrokerSettings
    from kohort.console.serving import ConsoleServer

    given = connection(options)
    if options.users and not str(given.get("security.protocol", "PLAINTEXT")).startswith("SASL"):
        raise ConfigError("--users needs a cluster with logins: -X security.protocol=SASL_SSL, or SASL_PLAINTEXT")
    # On an address beyond loopback the console itself asks for a login.
    config = {"http.listen": options.listen, "allow.anonymous.beyond.loopback": True}
    settings = BrokerSettings.of(config)
    if settings.http_listener is None:
        raise ConfigError("--listen is empty: HOST:PORT is expected, as 127.0.0.1:9080")
    with contextlib.closing(listen_on(settings, settings.http_listener)) as bound:
        server = ConsoleServer(
            given,
            bound,
            has_changes=options.http_changes,
            asks_for_users=options.users,
            token=password_in_file(options.token_file) if options.token_file else "",
            certificate=options.certificate,
            key=options.key,
        )
        url = server.url()
        say(f"console: {url.partition('?')[0] if options.token_file else url}")
        if not is_loopback(bound.getsockname()[0]) and not options.certificate:
            say("without --certificate the login and every page are sent unencrypted")
        say(f"ready {address(settings.http_listener.host, bound.getsockname()[1])}")
        sys.stdout.flush()
        stopped = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: stopped.set())
        server.start()
        try:
            stopped.wait()
        finally:
            server.stop()
            server.join(3.0)
    return 0
