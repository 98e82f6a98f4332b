"""`kohort up`: a broker in the foreground."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kohort.base import without_collections
from kohort.cli.arguments import parse_pairs
from kohort.cli.output import complain
from kohort.errors import ConfigError

if TYPE_CHECKING:
    from kohort.broker.options.first_users import FirstUser
    from kohort.broker.options.listeners import ListenerSettings
    from kohort.broker.options.settings import BrokerSettings
    from kohort.console.serving import BrokerConsole

#: Broker configs that name the data directory if the command line does not.
DIRECTORY_OPTIONS = ("log.dir", "log_dir", "log.dirs", "log_dirs")


def add_parser(subparsers: Any) -> None:
    """Add the verb to the command line."""
    up = subparsers.add_parser("up", help="start a broker in the foreground", run=run)
    up.add_argument("--host", help="address to listen on (default: that of the config listeners, or 127.0.0.1)")
    up.add_argument(
        "--port", type=int, help="port to listen on, 0 takes a free one (default: that of listeners, or 9092)"
    )
    up.add_argument(
        "--listen",
        action="append",
        default=[],
        metavar="NAME=HOST:PORT",
        help="a listener; repeatable. NAME is PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL, or has one of these by "
        "--config listener.security.protocol.map=NAME:PROTOCOL,...",
    )
    up.add_argument(
        "--http",
        metavar="HOST:PORT",
        help="serve the console (if kohort[console] is installed), /metrics, /healthz and /readyz by HTTP there "
        "(default: nowhere)",
    )
    up.add_argument(
        "--http-changes",
        action="store_true",
        help="let visitors of the console change groups and topics, as far as their login may (default: it only shows)",
    )
    up.add_argument("--http-certificate", metavar="FILE", help="serve the console by HTTPS with this certificate, PEM")
    up.add_argument("--http-key", metavar="FILE", help="the key of the certificate, PEM (default: in the same file)")
    up.add_argument(
        "--allow-anonymous",
        action="store_true",
        help="listen beyond this machine without a login and TLS: every host that reaches it may do everything",
    )
    place = up.add_mutually_exclusive_group()
    place.add_argument("--data-dir", metavar="DIR", help="keep topics and groups in this directory")
    place.add_argument("--in-memory", action="store_true", help="keep data in memory (the default without a directory)")
    up.add_argument("--config", action="append", default=[], metavar="NAME=VALUE", help="a broker config; repeatable")
    up.add_argument("--config-file", metavar="FILE", help="server.properties or TOML with broker configs")
    up.add_argument(
        "--scram-user",
        action="append",
        default=[],
        metavar="NAME[:MECHANISM]=@FILE",
        help="make this user unless it is there, with the first line of the file as its password, or =ENV:VARIABLE; "
        "repeatable (default: SCRAM-SHA-512)",
    )


def run(options: argparse.Namespace) -> int:
    """Run a broker until Ctrl-C or SIGTERM."""
    with without_collections():
        from kohort.broker.embedded import serve_in_foreground
        from kohort.broker.limits.memory import memory_limit_bytes
        from kohort.broker.options.settings import BrokerSettings

    if options.port is not None and not 0 <= options.port <= 65535:
        raise ConfigError(f"--port {options.port} is not a port: 0 to 65535 is expected")
    if options.listen and (options.host is not None or options.port is not None):
        raise ConfigError("--listen has a host and a port: leave out --host and --port")
    config = gather_config(options)
    data_dir = options.data_dir or next((config[name] for name in DIRECTORY_OPTIONS if config.get(name)), None)

    settings = BrokerSettings.of(config, host=options.host, port=options.port, data_dir=options.data_dir)

    console = _console_of(settings, options)

    def announce(addresses: Mapping[str, tuple[str, int]]) -> None:
        limit_bytes = memory_limit_bytes(settings.values["memory.limit.bytes"])
        url = "" if console is None else console.url()
        for line in announcement(
            settings.listeners, addresses, data_dir=data_dir, limit_bytes=limit_bytes, console=url
        ):
            print(line, flush=True)

    try:
        return serve_in_foreground(
            data_dir=options.data_dir,
            host=options.host,
            port=options.port,
            config=config,
            first_users=[first_user(text) for text in options.scram_user],
            on_ready=announce,
            http_maker=None if console is None else console.make,
        )
    finally:
        if console is not None:
            console.join()


def _console_of(settings: BrokerSettings, options: argparse.Namespace) -> BrokerConsole | None:
    """Return the console of this broker; `None` without HTTP, or if its packages are not installed."""
    from kohort.console import INSTALL, has_extra

    asked = "--http-changes" if options.http_changes else "--http-certificate" if options.http_certificate else ""
    if asked and settings.http_listener is None:
        raise ConfigError(f"{asked} is for the console, which --http HOST:PORT serves")
    if asked and not has_extra():
        raise ConfigError(f"{asked} is for the console, whose packages are not installed: {INSTALL}")
    if settings.http_listener is None or not has_extra():
        return None
    from kohort.console.serving import BrokerConsole

    certificate, key = options.http_certificate, options.http_key
    return BrokerConsole(settings, has_changes=options.http_changes, certificate=certificate, key=key)


def first_user(text: str) -> FirstUser:
    """Parse `NAME[:MECHANISM]=@FILE` or `=ENV:VARIABLE`, and read the password from there."""
    from kohort.broker.options.first_users import DEFAULT_MECHANISM, FirstUser
    from kohort.cli.passwords import password_in_environment, password_in_file

    named, _, source = text.partition("=")
    # A mechanism has no colon. A user name with a colon has to be given with its mechanism.
    name, colon, mechanism = named.rpartition(":")
    if source.startswith("@"):
        password = password_in_file(source[1:])
    elif source.startswith("ENV:"):
        password = password_in_environment(source[4:], "--scram-user")
    else:
        # The text may be a password, so the error does not quote it.
        raise ConfigError(
            "--scram-user is NAME=@FILE or NAME=ENV:VARIABLE: a command line is seen by others, and has no password"
        )
    return FirstUser.of(name, password, mechanism) if colon else FirstUser.of(named, password, DEFAULT_MECHANISM)


def gather_config(options: argparse.Namespace) -> dict[str, object]:
    """Merge the broker configs of the file and the command line, which wins.

    `--in-memory` removes data directories from the configs.

    Configs of the file that kohort's broker does not have are reported on the error output.
    """
    config: dict[str, object] = {}
    if options.config_file:
        from kohort.broker.options.configfile import load_config_file
        from kohort.broker.options.fileoptions import take_file

        taken = take_file(load_config_file(options.config_file))
        config.update(taken.config)
        if taken.remark:
            complain(taken.remark)
    config.update(parse_pairs(options.config, option="--config"))
    if options.listen:
        config["listeners"] = ",".join(map(_listener, options.listen))
    if options.http is not None:
        config["http.listen"] = options.http
    if options.allow_anonymous:
        config["allow.anonymous.beyond.loopback"] = True
    _warn_of_secrets(options.config)
    if options.in_memory:
        for name in DIRECTORY_OPTIONS:
            config.pop(name, None)
    return config


def _listener(text: str) -> str:
    """Return NAME=HOST:PORT as it is written in the config `listeners`."""
    name, equals, place = text.partition("=")
    if not equals or not name.strip() or "," in text or "://" in text:
        raise ConfigError(f"--listen {text!r} is no listener: NAME=HOST:PORT is expected, as PLAINTEXT=127.0.0.1:9092")
    return f"{name.strip()}://{place.strip()}"


def _warn_of_secrets(pairs: Sequence[str]) -> None:
    """Warn of passwords among the arguments, which every user of this machine can see."""
    from kohort.broker.options.listener_options import is_secret
    from kohort.broker.options.settings import BROKER_OPTIONS

    names = [name for name in parse_pairs(pairs, option="--config") if is_secret(name, BROKER_OPTIONS)]
    if names:
        complain(f"--config {', '.join(names)}: every user of this machine can see arguments; use --config-file")


def announcement(
    listeners: Sequence[ListenerSettings],
    addresses: Mapping[str, tuple[str, int]],
    *,
    data_dir: object | None,
    limit_bytes: int,
    console: str = "",
) -> list[str]:
    """Return the lines printed when clients can connect; programs can wait for the last one.

    `addresses`: listener -> the host and the port that it listens on. `limit_bytes`: the memory that records may take
    without a data directory. `console`: the console's URL, empty without one.
    """
    from kohort.broker.embedded import tell_addresses
    from kohort.broker.options.listeners import address

    place = f"data in {data_dir}" if data_dir else f"data in memory ({_size(limit_bytes)} at most), gone when it stops"
    # 0.0.0.0 and :: are addresses to listen on; a client on this machine connects to the machine itself.
    host, port = addresses[listeners[0].name]
    nearby = address({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port)
    lines = [f"kohort broker on {address(host, port)}, {place}"]
    if len(listeners) > 1:
        lines += [
            f"  listener {each.name} ({each.protocol.name}) on {address(*addresses[each.name])}" for each in listeners
        ]
    protocol = listeners[0].protocol.name
    is_plain = protocol == "PLAINTEXT"
    python, shell = ("", "") if is_plain else (f', security_protocol="{protocol}"', f" -X security.protocol={protocol}")
    lines += [
        f'  python: kohort.Consumer(bootstrap_servers="{nearby}", group_id="g"{python})',
        f"  shell:  kohort topic list --bootstrap {nearby}{shell}",
    ]
    for each in listeners:
        if each.advertised_host:
            told = address(each.advertised_host, each.advertised_port or addresses[each.name][1])
            whose = f" of {each.name}" if len(listeners) > 1 else ""
            lines.append(f"  clients{whose} are told to connect to {told} (advertised.listeners)")
    if "http" in addresses:
        scheme = "https" if console.startswith("https") else "http"
        lines.append(f"  http:   {scheme}://{address(*addresses['http'])}/metrics")
    lines += [f"  console: {console}"] if console else []
    return [*lines, "  stop with Ctrl-C", f"ready {tell_addresses(addresses)}"]


def _size(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.0f} MiB"
