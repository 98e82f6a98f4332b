"""The console: pages of 10,000 groups, the way of a row of the journal to a tab, what 20 open pages cost the broker.

Each console is a process of its own (`kohort console`), each tab a thread that reads events and the page after each.
"""

from __future__ import annotations

import gzip
import http.client
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from os import sysconf
from pathlib import Path
from typing import Any

import kohort
from report import NO_PEER, Row, Table, alternate, compare, warmed

GROUPS, TABS = 10_000, 20
#: Records that are sent and read at each step while pages are open, the bytes of each, and the steps.
RECORDS, RECORD_BYTES = 20_000, 100
STEPS, STEP_S = 50, 0.1
PLACE = kohort.TopicPartition("orders", 0)


@contextmanager
def console_of(address: str) -> Iterator[int]:
    """The port of a console of a cluster."""
    command = [sys.executable, "-m", "kohort.cli.main", "console", "-b", address, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            line = next(line for line in child.stdout if line.startswith("ready "))
            yield int(line.rpartition(":")[2])
        finally:
            child.terminate()


def get(port: int, path: str) -> bytes:
    """The compressed bytes of a page."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    client.request("GET", path, headers={"Accept-Encoding": "gzip"})
    answer = client.getresponse()
    body = answer.read()
    client.close()
    assert answer.status == 200, (path, answer.status)
    return body


def took_ms(port: int, path: str) -> float:
    began = time.perf_counter()
    get(port, path)
    return (time.perf_counter() - began) * 1000


def first_page_ms(address: str) -> float:
    """Milliseconds of the first page of a console that has just started."""
    with console_of(address) as port:
        return took_ms(port, "/groups")


class Tab:
    """An open page: reads its events, and the page after each."""

    def __init__(self, port: int, group: str) -> None:
        self.seen = threading.Semaphore(0)
        self._port, self._group, self._is_open = port, group, True
        self._client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._client.request("GET", f"/events?group={group}")
        self._answer = self._client.getresponse()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with suppress(OSError, ValueError, AttributeError, http.client.HTTPException):
            while self._is_open:
                line = self._answer.readline()
                if not line:
                    return
                if line.startswith(b"event: look"):
                    page = gzip.decompress(get(self._port, f"/group?id={self._group}"))
                    if b"configs changed" in page:
                        self.seen.release()

    def close(self) -> None:
        self._is_open = False
        self._client.close()


def way_of_a_row(admin: kohort.Admin, port: int) -> float:
    """Milliseconds from the call that makes a row to the page that has it; the median of 11."""
    found = []
    for number in range(11):
        group = f"watched-{time.time_ns()}"
        admin.alter_group_offsets(group, {PLACE: 0})
        get(port, f"/group?id={group}")
        tab = Tab(port, group)
        time.sleep(0.3)
        began = time.perf_counter()
        admin.alter_group_configs(group, {"consumer.session.timeout.ms": 46_000 + number})
        assert tab.seen.acquire(timeout=20)
        found.append((time.perf_counter() - began) * 1000)
        tab.close()
    return sorted(found)[5]


@contextmanager
def browser() -> Iterator[Any]:
    """A Chromium without a window; `None` where there is none, or no selenium."""
    chromium, driver = shutil.which("chromium") or shutil.which("chromium-browser"), shutil.which("chromedriver")
    if chromium is None or driver is None or find_spec("selenium") is None:
        yield None
        return
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for each in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(each)
    with webdriver.Chrome(options=options, service=webdriver.ChromeService(driver)) as opened:
        yield opened


#: Notes when a number of `way_to_the_dom` is first in the list of rows, milliseconds since 1970.
WATCH = """
window.seen = {};
new MutationObserver(() => {
  const rows = document.querySelector(".rows");
  for (const found of rows ? rows.textContent.matchAll(/46\\d\\d\\d/g) : []) seen[found[0]] ??= Date.now();
}).observe(document.body, {subtree: true, childList: true, characterData: true});
"""


def way_to_the_dom(admin: kohort.Admin, opened: Any, port: int) -> float:
    """Milliseconds from the call that makes a row to the page in a Chromium that has it; the median of 11."""
    found, group = [], f"watched-{time.time_ns()}"
    admin.alter_group_offsets(group, {PLACE: 0})
    opened.get(f"http://127.0.0.1:{port}/group?id={group}")
    time.sleep(1)
    opened.execute_script(WATCH)
    for number in range(46_000, 46_011):
        time.sleep(0.3)
        began_ms = time.time() * 1000
        admin.alter_group_configs(group, {"consumer.session.timeout.ms": number})
        deadline = time.monotonic() + 20
        while not (at_ms := opened.execute_script(f"return window.seen['{number}']")):
            assert time.monotonic() < deadline, "the row does not come"
            time.sleep(0.02)
        found.append(at_ms - began_ms)
    return sorted(found)[5]


def processor_ms(process_id: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / sysconf("SC_CLK_TCK")


def cost(broker: kohort.Broker, port: int, *, tabs: int) -> float:
    """Processor time of the broker, ms, for sending and reading at a steady pace while so many pages are open."""
    address, value = broker.bootstrap_servers, b"x" * RECORD_BYTES
    assert broker.process_id is not None
    with (
        kohort.Producer(bootstrap_servers=address) as producer,
        kohort.Consumer(bootstrap_servers=address, group_id="reading", auto_offset_reset="latest") as consumer,
    ):
        consumer.subscribe(["load"])
        while not consumer.assignment():
            consumer.poll(0.05)
        opened = [Tab(port, "reading") for _ in range(tabs)]
        began_ms, began, read = processor_ms(broker.process_id), time.monotonic(), 0
        for number in range(1, STEPS + 1):
            sent = producer.send_many("load", [value] * RECORDS)
            read += len(consumer.poll(1.0))
            sent.result(30)
            time.sleep(max(0.0, began + number * STEP_S - time.monotonic()))
        found = processor_ms(broker.process_id) - began_ms
        for tab in opened:
            tab.close()
    return found


def measure(runs: int) -> list[Table]:
    def alone(what: str, found: list[float], unit: str, reach: str) -> Row:
        how = warmed(runs)
        return compare(what, found, [], unit=unit, reach=reach, peer_name=NO_PEER, how=how, less_is_better=True)

    rows = []
    with kohort.Broker(process=True) as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("orders", 10)
        for number in range(GROUPS):
            admin.alter_group_offsets(f"group-{number:05}", {kohort.TopicPartition("orders", number % 10): 0})
        first = alternate(runs, lambda: first_page_ms(broker.bootstrap_servers), None)[0]
        rows.append(alone(f"{GROUPS:,} groups: the first page of a console", first, "ms", "<= 500 ms"))
        with console_of(broker.bootstrap_servers) as port:
            get(port, "/groups.json")
            paths = iter(f"/groups?sort=lag&q={'group-'[: 1 + number % 6]}&page={1 + number}" for number in range(90))
            update = alternate(runs, lambda: took_ms(port, next(paths)), None)[0]
            rows.append(alone(f"{GROUPS:,} groups: another page, filtered and sorted", update, "ms", "<= 100 ms"))
            size = alternate(runs, lambda: len(get(port, "/groups")) / 1024, None)[0]
            rows.append(alone(f"{GROUPS:,} groups: the first page, compressed", size, "KiB", "<= 150 KiB"))
    with kohort.Broker(process=True) as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("orders", 1)
        admin.create_topic("load", 1)
        admin.alter_group_offsets("reading", {PLACE: 0})
        with console_of(broker.bootstrap_servers) as port:
            ways = alternate(runs, lambda: way_of_a_row(admin, port), None)[0]
            rows.append(alone("a row of the journal to the page of a tab", ways, "ms", "<= 300 ms"))
            with browser() as opened:
                if opened is not None:
                    ways = alternate(runs, lambda: way_to_the_dom(admin, opened, port), None)[0]
                    rows.append(alone("a row of the journal to the DOM of a Chromium", ways, "ms", "<= 300 ms"))
            with_tabs, without = alternate(
                runs, lambda: cost(broker, port, tabs=TABS), lambda: cost(broker, port, tabs=0)
            )
            rows.append(
                compare(
                    f"the broker's processor time, {RECORDS * STEPS // 10**6} M records in 5 s, {TABS} open pages",
                    with_tabs,
                    without,
                    unit="ms",
                    reach=">= 0.98x",
                    peer_name="ours without",
                    how=warmed(runs),
                    less_is_better=True,
                )
            )
    return [Table("console", "The console", rows)]
