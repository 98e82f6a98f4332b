"""The page of `kohort report` in a Chromium, where there is one: nothing cut, no text over text, at every width."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort.cli.report.page import write_page
from support.builders.group_reports import report_of, two_members
from support.dialogues.browser import open_browser, show
from support.dialogues.journal_rows import GroupRows

pytestmark = [pytest.mark.interop, pytest.mark.process, pytest.mark.large]

WIDTHS = (400, 1280, 2560)
HOSTILE = ("<b>bold</b><script>document.title='taken'</script>", "g" * 300, "קבוצה של חיובים", "flights-spark-2013")
#: Texts that lie over each other, and elements that are wider than the page or cut what is in them.
FAULTS = """
const texts = [...document.querySelectorAll("svg text, td, th, h1, h2, h3, p, li, summary")].filter(
  (each) => each.checkVisibility() && each.textContent.trim() && !each.querySelector("td, p, li"));
const boxes = texts.map((each) => {
  const range = document.createRange();
  range.selectNodeContents(each);
  return {text: each.textContent.slice(0, 60), box: each.tagName === "text" ? each.getBoundingClientRect()
          : range.getBoundingClientRect()};
}).filter(({box}) => box.width && box.height);
const faults = [];
boxes.sort((one, other) => one.box.top - other.box.top);
for (const [number, {text, box}] of boxes.entries()) {
  if (box.left < -0.5 || box.right > innerWidth + 0.5) faults.push("cut: " + text);
  for (const {text: below, box: other} of boxes.slice(number + 1)) {
    if (other.top >= box.bottom - 1) break;
    const over = Math.min(box.right, other.right) - Math.max(box.left, other.left);
    if (over > 1.5) faults.push(text + " over " + below);
  }
}
for (const each of document.querySelectorAll(".wide")) {
  if (each.checkVisibility() && each.scrollWidth > each.clientWidth + 1) faults.push("scrolls: " + each.innerText);
}
return faults;
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_browser() as opened:
        yield opened


def busy() -> GroupRows:
    """A group whose members come and go: more rebalances than ticks, partitions without a reader, long names."""
    tell = two_members()
    for number in range(130):
        name = ("cleo", "d" * 300, "דני")[number % 3]
        tell.after(2_000).joins(name)
        tell.after(50).settles(name, gained="orders-3")
        tell.after(900).goes(name, "session timeout", released="orders-3")
        tell.after(700).settles("ada", gained="orders-3")
        read = {"from": name, "partitions": "orders-3", "read_ms": tell.at - 1_000, "unread_ms": 1_000}
        tell.row("partitions_read", "ada", **read)
        tell.settles("ada", released="orders-3")
    return tell


def test_nothing_is_cut_and_no_text_lies_over_another(browser: Any, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    line = {
        "group_id": "g" * 300, "protocol": "consumer", "epoch": 1_000_000, "began": "2026-01-31 12:00:00.000",
        "seconds": 12.5, "why": "member joined", "cause": f"{'m' * 300} joined", "members": 100_000, "moved": 10_000,
        "given_back_by": 99_999, "unread": 10_000, "unread_seconds": 3_600.0,
    }  # fmt: skip
    groups = {"billing": busy().rows, **{name: two_members().rows for name in HOSTILE}}
    contents = report_of(groups, lag=[0, 5, 1_234_567_890, 12], rebalances=[line] * 3, waits=[], flapping=[])
    write_page(contents, page)
    faults = {}
    for width in WIDTHS:
        for theme in ("light", "dark"):
            show(browser, page.as_uri(), width=width, theme=theme)
            found = browser.execute_script(FAULTS)
            if browser.execute_script("return document.documentElement.scrollWidth") > width:
                found.append("the page is wider than the window")
            faults |= {(width, theme): found} if found else {}
    assert faults == {}
    assert browser.title == "5 groups"
    browser.execute_script("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert not browser.execute_script(FAULTS)
    names = browser.execute_script(
        "return [...document.querySelectorAll('td .name a')].map((each) => each.getClientRects().length)"
    )
    assert names and set(names) == {1}, "names of groups are not broken"
