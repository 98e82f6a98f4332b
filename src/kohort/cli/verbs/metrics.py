"""`kohort metrics`: the metrics of any cluster for Prometheus, printed once or served.

Source: kafka_exporter and KMinion; the metric families have the names of one of them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import signal
import sys
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from kohort.cli.bootstrap import add_bootstrap, open_admin
from kohort.cli.output import say
from kohort.errors import ConfigError, KohortError
from kohort.metrics.cluster import EndOffsets, collect, note_ends
from kohort.metrics.dashboards import alert_rules, dashboard
from kohort.metrics.exposition import OPEN_TYPE, TEXT_TYPE, is_open, write
from kohort.metrics.peers import NAMES, Names, build_families

if TYPE_CHECKING:
    from kohort import Admin
    from kohort.broker.http import Answer, Asked
    from kohort.broker.options.settings import BrokerSettings

log = logging.getLogger("kohort.cli")


def add_parser(subparsers: Any) -> None:
    """Add the verb to the command line."""
    metrics = subparsers.add_parser(
        "metrics",
        help="topics, groups and lag of any cluster for Prometheus",
        description="Print the metrics of a cluster, kohort's or Apache Kafka's, in Prometheus' text format; with "
        "--listen serve them. A broker of kohort has more of them by itself: kohort up --http.",
        run=run,
    )
    add_bootstrap(metrics)
    metrics.add_argument(
        "--families", choices=NAMES, default=NAMES[0], help="the exporter with the same names (default: %(default)s)"
    )
    metrics.add_argument(
        "--print",
        dest="printed",
        choices=("dashboard", "alerts"),
        help="print a dashboard for Grafana, or a file of alert rules for Prometheus, without reading a cluster",
    )
    metrics.add_argument("--openmetrics", action="store_true", help="print OpenMetrics instead")
    metrics.add_argument(
        "--listen", metavar="HOST:PORT", help="serve /metrics, /healthz and /readyz by HTTP there, until Ctrl-C"
    )
    metrics.add_argument(
        "--allow-anonymous", action="store_true", help="serve beyond this machine: every host may read the page"
    )


def run(options: argparse.Namespace) -> int:
    """Print the page, or serve it."""
    if options.printed is not None:
        said = dashboard() if options.printed == "dashboard" else alert_rules()
        sys.stdout.write(json.dumps(said, indent=2) + "\n")
        return 0
    if options.listen is not None:
        return _serve(options)
    with open_admin(options) as admin:
        sys.stdout.write(_Cluster(admin).page(options.families, as_open=options.openmetrics))
    return 0


class _Cluster:
    """The metrics of one cluster, read by one admin client."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._ends = EndOffsets()

    def page(self, names: Names, *, as_open: bool) -> str:
        """Read the cluster, and format its metrics as text."""
        snapshot = collect(self._admin, has_sizes=names == "kminion")
        note_ends(self._ends, snapshot.topics.values(), now_ms=snapshot.now_ms)
        families = build_families(snapshot, self._ends, names=names)
        return write((each for each in families if each is not None), as_open=as_open)


class _Pages:
    """The paths of the server; the cluster is read once at a time, and equal scrapes share the result."""

    def __init__(self, admin: Admin, names: Names) -> None:
        self._admin = admin
        self._cluster = _Cluster(admin)
        self._names = names
        self._under_way: dict[tuple[Names, bool], asyncio.Task[str]] = {}
        self._turn = asyncio.Lock()

    async def metrics(self, asked: Asked) -> Answer:
        """Respond with the current metrics."""
        from kohort.broker.http import Answer

        names = asked.query.get("families", self._names)
        if names not in NAMES:
            return Answer(f"families is one of {' '.join(NAMES)}\n".encode(), status=HTTPStatus.BAD_REQUEST)
        key = names, is_open(asked.headers.get("accept", ""))
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.create_task(self._make(*key))
        try:
            body = await asyncio.shield(task)
        except KohortError as why:
            return _unavailable(why)
        return Answer(body.encode(), OPEN_TYPE if key[1] else TEXT_TYPE)

    async def health(self, _: Asked) -> Answer:
        """Respond with 200 as long as this process runs."""
        from kohort.broker.http import Answer

        return Answer(b"ok\n")

    async def readiness(self, asked: Asked) -> Answer:
        """Respond with 200 if the cluster responds, else with 503."""
        try:
            await asyncio.to_thread(self._admin.describe_cluster)
        except KohortError as why:
            return _unavailable(why)
        return await self.health(asked)

    async def _make(self, names: Names, as_open: bool) -> str:
        try:
            async with self._turn:
                return await asyncio.to_thread(self._cluster.page, names, as_open=as_open)
        finally:
            del self._under_way[names, as_open]


def _unavailable(why: KohortError) -> Answer:
    from kohort.broker.http import Answer

    log.warning("event=metrics_failed reason=%r", str(why))
    return Answer(f"{why}\n".encode(), status=HTTPStatus.SERVICE_UNAVAILABLE)


def _serve(options: argparse.Namespace) -> int:
    # The commands that only print do not pay for these imports.
    from kohort.broker.options.settings import BrokerSettings

    config = {"http.listen": options.listen, "allow.anonymous.beyond.loopback": options.allow_anonymous}
    settings = BrokerSettings.of(config)
    if settings.http_listener is None:
        raise ConfigError("--listen is empty: HOST:PORT is expected, as 127.0.0.1:9308")
    with open_admin(options) as admin, contextlib.suppress(asyncio.CancelledError):
        # A cluster that does not respond is an error at once, and not at the first scrape.
        admin.describe_cluster()
        asyncio.run(_serve_until_stopped(settings, _Pages(admin, options.families)))
    return 0


async def _serve_until_stopped(settings: BrokerSettings, pages: _Pages) -> None:
    from kohort.broker.connections.sockets import listen_on
    from kohort.broker.http import HttpServer
    from kohort.broker.options.listeners import address

    assert settings.http_listener is not None
    server = HttpServer({"/metrics": pages.metrics, "/healthz": pages.health, "/readyz": pages.readiness})
    bound = listen_on(settings, settings.http_listener)
    host, port = settings.http_listener.host, bound.getsockname()[1]
    await server.start(bound)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    say(f"http://{address(host, port)}/metrics", f"ready {address(host, port)}")
    sys.stdout.flush()
    try:
        await stopped.wait()
    finally:
        server.stop()
