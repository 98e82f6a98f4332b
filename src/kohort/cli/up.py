"""`kohort up`: a broker in the foreground."""

from __future__ import annotations

import argparse
from typing import Any

from kohort.cli.main import parse_pairs
from kohort.errors import ConfigError


def add_parser(subparsers: Any) -> None:
    """Add the verb to the command line."""
    up = subparsers.add_parser("up", help="start a broker in the foreground", allow_abbrev=False)
    up.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    up.add_argument("--port", type=int, default=9092, help="port to listen on, 0 takes a free one (default 9092)")
    place = up.add_mutually_exclusive_group()
    place.add_argument("--data-dir", metavar="DIR", help="keep topics and groups in this directory")
    place.add_argument("--in-memory", action="store_true", help="keep nothing (the default without --data-dir)")
    up.add_argument("--config", action="append", default=[], metavar="NAME=VALUE", help="a broker config; repeatable")
    up.add_argument("--config-file", metavar="FILE", help="server.properties or TOML with broker configs")
    up.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serve until Ctrl-C or SIGTERM."""
    from kohort.broker.embedded import serve_in_foreground
    from kohort.broker.settings import load_config_file

    if not 0 <= options.port <= 65535:
        raise ConfigError(f"--port {options.port} is not a port: 0 to 65535 is expected")
    config: dict[str, object] = dict(load_config_file(options.config_file)) if options.config_file else {}
    config.update(parse_pairs(options.config, option="--config"))

    def announce(host: str, port: int) -> None:
        place = f"data in {options.data_dir}" if options.data_dir else "data in memory, gone when it stops"
        print(f"kohort broker on {host}:{port}, {place}")
        print(f'  python: kohort.Consumer(bootstrap_servers="{host}:{port}", group_id="g")')
        print(f"  shell:  kohort topic list --bootstrap {host}:{port}")
        print("  stop with Ctrl-C")
        print(f"ready {host}:{port}", flush=True)

    return serve_in_foreground(
        data_dir=options.data_dir, host=options.host, port=options.port, config=config, on_ready=announce
    )
