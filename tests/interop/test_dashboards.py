"""Dashboards asked of a real Prometheus that scrapes a broker while a group rebalances."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest

import kohort
from kohort.metrics.dashboards import PANELS, alert_rules
from support.waiting import until

WAIT_S = 30.0
OF_OTHERS = json.loads((Path(__file__).parents[1] / "support" / "dashboards_of_others.json").read_text())
#: What Grafana puts in the place of a variable.
VARIABLES = {
    "topic": "orders|unread",
    "consumergroup": "billing",
    "group": "billing",
    "job": "kohort",
    "instance": "broker",
    "kubernetes_namespace": "here",
    "strimzi_cluster_name": "here",
}

pytestmark = [
    pytest.mark.process,
    pytest.mark.large,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="there is no prometheus here"),
]


def config_of(address: str) -> str:
    labels = {"instance": "broker", "namespace": "here", "strimzi_io_cluster": "here"}
    targets = [{"targets": [address], "labels": labels}]
    jobs = [{"job_name": "kohort", "scrape_interval": "200ms", "scrape_timeout": "200ms", "static_configs": targets}]
    return json.dumps({"scrape_configs": jobs})


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One that has scraped a broker with a group, whose second member came later, and which reads and lags."""
    folder = tmp_path_factory.mktemp("prometheus")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        here = f"127.0.0.1:{free.getsockname()[1]}"
    with kohort.Broker(data_dir=folder / "broker", config={"http.listen": "127.0.0.1:0"}) as broker:
        (folder / "prometheus.yml").write_text(config_of(broker.http_address))
        words = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        with (folder / "log").open("w") as log:
            running = subprocess.Popen([*words, f"--web.listen-address={here}"], stdout=log, stderr=log)
        try:
            with RebalancedGroup(broker.bootstrap_servers):
                until(lambda: has_scraped(here), what="five scrapes", seconds=WAIT_S)
                yield here
        finally:
            running.terminate()
            running.wait(WAIT_S)


class RebalancedGroup:
    """A group of two members, the second of which got partitions of the first."""

    def __init__(self, address: str) -> None:
        self.options: dict[str, Any] = {
            "bootstrap_servers": address,
            "group_id": "billing",
            "auto_offset_reset": "earliest",
        }
        self.members: list[kohort.Consumer] = []

    def __enter__(self) -> None:
        with kohort.Admin(bootstrap_servers=self.options["bootstrap_servers"]) as admin:
            admin.create_topic("orders", 4)
            admin.create_topic("unread", 1)
        self.members.append(kohort.Consumer("orders", client_id="a", **self.options))
        until(lambda: len(self.members[0].assignment()) == 4, what="all", step=self.poll)
        self.members.append(kohort.Consumer("orders", client_id="b", **self.options))
        until(lambda: all(len(each.assignment()) == 2 for each in self.members), what="shared", step=self.poll)
        with kohort.Producer(bootstrap_servers=self.options["bootstrap_servers"]) as producer:
            for number in range(8):
                producer.send("orders", b"x", partition=number % 4).result(WAIT_S)
        for each in self.members:
            each.commit(dict.fromkeys(each.assignment(), 1))

    def poll(self) -> None:
        for each in self.members:
            each.poll(0.02)

    def __exit__(self, *_: object) -> None:
        for each in self.members:
            each.close()


def query(here: str, expression: str) -> list[Any]:
    body = urlencode({"query": expression}).encode()
    with urlopen(Request(f"http://{here}/api/v1/query", body), timeout=WAIT_S) as answer:
        found: list[Any] = json.load(answer)["data"]["result"]
    return found


def has_scraped(here: str) -> bool:
    try:
        found = query(here, "count_over_time(kafka_consumergroup_current_offset[5m]) >= 5")
    except (URLError, ConnectionError):
        return False
    return len(found) == 4


def filled(expression: str) -> str:
    """The expression that Grafana would send to Prometheus."""
    values = re.fullmatch(r"(?:label_values|query_result)\((.*?)(?:, *\w+)?\)", expression)
    asked = values[1] if values else expression
    for name, value in VARIABLES.items():
        asked = asked.replace(f"${name}", value)
    assert "$" not in asked, asked
    return asked


@pytest.mark.parametrize("dashboard", OF_OTHERS)
def test_dashboard_of_another_exporter_has_data_unedited(prometheus: str, dashboard: str) -> None:
    empty = [each for each in OF_OTHERS[dashboard] if not query(prometheus, filled(each))]
    assert empty == []


def test_our_dashboard_has_data(prometheus: str) -> None:
    expressions = [expression for panel in PANELS for expression, _ in panel.expressions]
    assert [each for each in expressions if not query(prometheus, filled(each))] == []


def test_alert_rules_are_rules_and_ask_for_what_there_is(prometheus: str, tmp_path: Path) -> None:
    rules = alert_rules()
    (tmp_path / "rules.yml").write_text(json.dumps(rules))
    subprocess.run(
        ["promtool", "check", "rules", tmp_path / "rules.yml"], check=True, capture_output=True, timeout=WAIT_S
    )
    names = {name for each in rules["groups"][0]["rules"] for name in re.findall(r"kohort_\w+", each["expr"])}
    assert [name for name in sorted(names) if not query(prometheus, name)] == []


def test_promtool_has_nothing_to_say_about_a_page() -> None:
    with kohort.Broker(config={"http.listen": "127.0.0.1:0"}) as broker:
        page = urlopen(f"http://{broker.http_address}/metrics", timeout=WAIT_S).read()
    checked = subprocess.run(["promtool", "check", "metrics"], check=False, input=page, capture_output=True, timeout=9)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")
