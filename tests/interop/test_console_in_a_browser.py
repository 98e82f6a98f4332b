"""The console in a Chromium, where there is one: live, by the keyboard alone, narrow, dark, readable for all."""

from __future__ import annotations

import importlib.util
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit
from urllib.request import urlopen

import pytest

import kohort
from kohort.ids import TopicPartition
from support.dialogues.browser import open_browser, show
from support.waiting import until

pytestmark = [pytest.mark.interop, pytest.mark.process, pytest.mark.large]

for package in ("starlette", "uvicorn", "jinja2"):
    pytest.importorskip(package)

HOSTILE = 'a "quoted" </script><b>\n&' + "x" * 220
NARROW, WIDE = 360, 1200


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def console() -> Iterator[tuple[str, kohort.Admin]]:
    """The address of a console, and the cluster's admin client; the group `billing` has had two members."""
    from kohort.console.serving import ConsoleServer

    with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("orders", 4)
        admin.alter_group_offsets(HOSTILE, {TopicPartition("orders", 0): 0})
        options = {"bootstrap_servers": broker.bootstrap_servers, "group_id": "billing"}
        with kohort.Consumer("orders", client_id="a", **options) as a:
            until(a.assignment, what="a has it all", step=lambda: a.poll(0.02))
            with kohort.Consumer("orders", client_id="b", **options) as b:

                def poll() -> None:
                    a.poll(0.02)
                    b.poll(0.02)

                until(b.assignment, what="shared", step=poll)
            until(lambda: len(a.assignment()) == 4, what="a has it all again", step=lambda: a.poll(0.02))
        with kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("orders", b'{"a": "<b>"}', key=HOSTILE).result(20)
        bound = socket.create_server(("127.0.0.1", 0))
        server = ConsoleServer({"bootstrap.servers": broker.bootstrap_servers}, bound, has_changes=True)
        server.start()
        address = f"http://127.0.0.1:{bound.getsockname()[1]}"
        try:
            # A JSON twin waits until the cluster has been read.
            urlopen(f"{address}/groups.json", timeout=40).close()
            yield address, admin
        finally:
            server.stop()
            server.join(20)


def findings(browser: Any) -> list[tuple[str, list[str]]]:
    """What axe-core finds on a page: a rule, and the elements that break it."""
    found = importlib.util.find_spec("axe_core_python")
    assert found is not None and found.origin is not None
    browser.execute_script((Path(found.origin).parent / "axe.min.js").read_text())
    result = browser.execute_async_script("axe.run().then(arguments[0], (why) => arguments[0]({failed: String(why)}))")
    return [(rule["id"], [node["html"] for node in rule["nodes"]]) for rule in result["violations"]]


def pages(admin: kohort.Admin) -> Iterator[str]:
    last = admin.explain_group("billing").last
    assert last is not None
    yield from (
        "/groups",
        "/group?id=billing",
        f"/group?id={quote(HOSTILE)}",
        "/topics",
        "/broker",
        "/topic?name=orders",
    )
    yield f"/rebalance?group=billing&began={last.began_ms}"
    yield from ("/partition?group=billing&topic=orders&partition=1", "/group?id=nobody")
    yield f"/change?kind=reset&to=latest&group={quote(HOSTILE)}"


def test_each_page_is_for_everybody(browser: Any, console: tuple[str, kohort.Admin]) -> None:
    """axe-core without findings in both themes, nothing wider than 360 px, no script fails, no other host is asked."""
    pytest.importorskip("axe_core_python")
    address, admin = console
    wrong: dict[str, object] = {}
    for number, path in enumerate(pages(admin)):
        show(browser, address + path, width=NARROW, theme="dark" if number % 2 else "light")
        wide = browser.execute_script("return document.documentElement.scrollWidth")
        asked = browser.execute_script("return performance.getEntriesByType('resource').map((each) => each.name)")
        foreign = [each for each in asked if not each.startswith(address)]
        said = [
            each["message"]
            for each in browser.get_log("browser")
            if urlsplit(address + path).path not in each["message"]
        ]
        problems = findings(browser)
        if wide > NARROW or foreign or said or problems:
            wrong[path] = (wide, foreign, said, problems)
    assert wrong == {}
    colours = []
    for theme in ("dark", "light"):
        show(browser, f"{address}/login", theme=theme, width=WIDE)
        colours.append(browser.execute_script("return getComputedStyle(document.body).backgroundColor"))
    assert colours[0] != colours[1]


def test_a_row_of_the_journal_comes_to_an_open_page(browser: Any, console: tuple[str, kohort.Admin]) -> None:
    """Without a reload, and what has the focus keeps it."""
    address, admin = console
    show(browser, f"{address}/group?id=billing", width=WIDE)
    until(lambda: browser.execute_script("return document.getElementById('live').textContent") == "live", what="live")
    browser.execute_script("window.isTheSame = true; document.querySelector('[data-live=rebalances] a').focus()")
    focused = browser.execute_script("return document.activeElement.href")
    admin.alter_group_configs("billing", {"consumer.session.timeout.ms": 47_123})
    admin.alter_group_offsets("billing", {TopicPartition("orders", 0): 1})
    until(lambda: "47123" in browser.execute_script("return document.querySelector('.rows').textContent"), what="row")
    assert browser.execute_script("return window.isTheSame === true")
    assert browser.execute_script("return document.activeElement.href") == focused


def test_everything_is_reached_by_the_keyboard(browser: Any, console: tuple[str, kohort.Admin]) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    address, _ = console
    show(browser, f"{address}/groups?q=billing", width=WIDE)

    def press(key: str) -> str:
        ActionChains(browser).send_keys(key).perform()
        return str(browser.execute_script("return document.activeElement.getAttribute('href') || ''"))

    assert press(Keys.TAB) == "#main", "the first is the way around the navigation"
    until(lambda: press(Keys.TAB) == "/group?id=billing", what="the group has the focus")
    press(Keys.ENTER)
    until(lambda: browser.title.startswith("billing"), what="the page of the group")
    until(lambda: press(Keys.TAB).startswith("/rebalance"), what="a rebalance has the focus")
    press(Keys.ENTER)
    until(lambda: browser.title.startswith("Rebalance of billing"), what="the page of the rebalance")


def test_dragging_over_the_picture_zooms(browser: Any, console: tuple[str, kohort.Admin]) -> None:
    """The address has the times then, so that the view can be sent to others."""
    from selenium.webdriver.common.action_chains import ActionChains

    address, _ = console
    show(browser, f"{address}/group?id=billing&span=5m", width=WIDE)
    picture = browser.find_element("css selector", "svg.lanes")
    drag = ActionChains(browser).move_to_element_with_offset(picture, 50, -20).click_and_hold()
    drag.move_by_offset(150, 3).release().perform()
    until(lambda: "from=" in browser.current_url, what="the address of the span")
    shown = browser.execute_script("const {from, to} = document.querySelector('svg.lanes').dataset; return to - from")
    assert 0 < shown < 120_000
