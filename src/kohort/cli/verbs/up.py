"""`kohort up`: a broker in the foreground."""

from __future__ import annotations

import argparse
from typing import Any

from kohort.cli.arguments import parse_pairs
from kohort.cli.output import complain
from kohort.errors import ConfigError

#: Where a data directory may come from if the command line names none.
DIRECTORY_OPTIONS = ("log.dir", "log_dir", "log.dirs", "log_dirs")


def add_parser(subparsers: Any) -> None:
    """Add the verb to the command line."""
    up = subparsers.add_parser("up", help="start a broker in the foreground", run=run)
    up.add_argument("--host", help="address to listen on (default: that of the config listeners, or 127.0.0.1)")
    up.add_argument(
        "--port", type=int, help="port to listen on, 0 takes a free one (default: that of listeners, or 9092)"
    )
    place = up.add_mutually_exclusive_group()
    place.add_argument("--data-dir", metavar="DIR", help="keep topics and groups in this directory")
    place.add_argument("--in-memory", action="store_true", help="keep nothing (the default without a directory)")
    up.add_argument("--config", action="append", default=[], metavar="NAME=VALUE", help="a broker config; repeatable")
    up.add_argument("--config-file", metavar="FILE", help="server.properties or TOML with broker configs")


def run(options: argparse.Namespace) -> int:
    """Serve until Ctrl-C or SIGTERM."""
    from kohort.broker.embedded import serve_in_foreground
    from kohort.broker.limits.memory import memory_limit_bytes
    from kohort.broker.options.settings import BrokerSettings

    if options.port is not None and not 0 <= options.port <= 65535:
        raise ConfigError(f"--port {options.port} is not a port: 0 to 65535 is expected")
    config = gather_config(options)
    data_dir = options.data_dir or next((config[name] for name in DIRECTORY_OPTIONS if config.get(name)), None)

    settings = BrokerSettings.of(config, host=options.host, port=options.port, data_dir=options.data_dir)

    def announce(host: str, port: int) -> None:
        first = settings.listeners[0]
        advertised = first.advertised_host and f"{first.advertised_host}:{first.advertised_port or port}"
        limit_bytes = memory_limit_bytes(settings.values["memory.limit.bytes"])
        for line in announcement(host, port, data_dir=data_dir, limit_bytes=limit_bytes, advertised=advertised):
            print(line, flush=True)

    return serve_in_foreground(
        data_dir=options.data_dir, host=options.host, port=options.port, config=config, on_ready=announce
    )


def gather_config(options: argparse.Namespace) -> dict[str, object]:
    """Merge the broker configs of the file and the command line, which wins.

    `--in-memory` removes directories.

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
    if options.in_memory:
        for name in DIRECTORY_OPTIONS:
            config.pop(name, None)
    return config


def announcement(
    host: str, port: int, *, data_dir: object | None, limit_bytes: int, advertised: str | None = None
) -> list[str]:
    """Return the lines printed when clients can connect; the last one is for programs that wait.

    `limit_bytes`: the memory that records may take where there is no directory.
    """
    # 0.0.0.0 and :: are addresses to listen on; a client on this machine connects to the machine itself.
    near = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    address, nearby = (f"[{name}]:{port}" if ":" in name else f"{name}:{port}" for name in (host, near))
    place = f"data in {data_dir}" if data_dir else f"data in memory ({_size(limit_bytes)} at most), gone when it stops"
    return [
        f"kohort broker on {address}, {place}",
        f'  python: kohort.Consumer(bootstrap_servers="{nearby}", group_id="g")',
        f"  shell:  kohort topic list --bootstrap {nearby}",
        *([f"  clients are told to connect to {advertised} (advertised.listeners)"] if advertised else []),
        "  stop with Ctrl-C",
        f"ready {address}",
    ]


def _size(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.0f} MiB"
