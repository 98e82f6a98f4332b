"""Suites on the fixtures as users have them: services, jobs, a thousand tests; each against Apache Kafka, too.

`make soak ONLY=suites` makes an environment with the packages of the group `suites` and runs all of it.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from support.depth import IS_SOAK, at_depth
from support.peers.apache_broker import ApacheKafka

pytest_plugins = ["pytester"]
pytestmark = [
    pytest.mark.interop,
    pytest.mark.process,
    pytest.mark.timeout(1_800),
    pytest.mark.skipif(not IS_SOAK, reason="make soak ONLY=suites runs it"),
]

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
#: Suite -> how many of its tests pass everywhere, and how many have faults that kohort alone can answer.
SUITES = {"worker_suite": (3, 1), "service_suite": (3, 1), "spark_suite": (2, 0)}
#: A test with a topic and a group of its own, which sends and reads one record; and what is left at the end of a run.
MANY = """
import asyncio, os, tempfile, threading
import pytest
import kohort as k
from kohort import aio

pytestmark = pytest.mark.{mark}

@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.fixture(scope="session", autouse=True)
def nothing_is_left(kohort_session):
    kohort_session.admin.list_topics()
    kohort_session.group("none").describe()
    before = things()
    yield
    after = things()
    assert {{name for name in after if after[name] > before[name]}} == set(), (before, after)
    assert not kohort_session.admin.list_groups()
    assert all(topic.is_internal for topic in kohort_session.admin.list_topics())

def things():
    links = (f"/proc/self/fd/{{each}}" for each in os.listdir("/proc/self/fd"))
    kinds = [os.readlink(each).partition(":")[0] for each in links if os.path.lexists(each)]
    return {{
        "threads": threading.active_count(),
        "sockets": kinds.count("socket"),
        "files": len(kinds) - kinds.count("socket"),
        "temporary": len(os.listdir(tempfile.gettempdir())),
    }}

@pytest.mark.parametrize("number", range({count}))
async def test_record_is_read(kohort, kohort_topic, kohort_group, number):
    async with aio.Producer(bootstrap_servers=kohort.bootstrap_servers) as producer:
        await (await producer.send(kohort_topic, value=str(number)))
    options = {{"bootstrap_servers": kohort.bootstrap_servers, "auto_offset_reset": "earliest"}}
    async with aio.Consumer(kohort_topic, group_id=kohort_group, **options) as consumer:
        found = []
        while not found:
            found = [record.value for record in await consumer.poll(5.0)]
        assert found == [str(number).encode()]
        await consumer.commit()
    await asyncio.to_thread(kohort.group(kohort_group).assert_committed, {{(kohort_topic, 0): 1}})
"""


@pytest.fixture(scope="module")
def suites() -> Path:
    """The Python of an environment with the packages of the group `suites` above those of this one."""
    found = ROOT / "build" / "suites"
    python = found / "bin" / "python"
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["suites"]
    if not (found / "ready").is_file() or (found / "ready").read_text() != str(wanted):
        subprocess.run([sys.executable, "-m", "venv", "--clear", found], check=True, timeout=120)
        (site,) = found.glob("lib/python*/site-packages")
        (site / "below.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
        pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, *wanted], check=True, timeout=600)
        (found / "ready").write_text(str(wanted))
    return python


@pytest.fixture(autouse=True)
def in_suites(suites: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what this test starts run in that environment, and on this kohort."""
    monkeypatch.setattr(sys, "executable", str(suites))
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))


def run(pytester: pytest.Pytester, suite: str, *options: str) -> pytest.RunResult:
    for each in (EXAMPLES / suite).glob("*.py"):
        (pytester.path / each.name).write_text(each.read_text())
    return pytester.runpytest_subprocess("-p", "no:xdist", "-p", "no:asyncio", "--timeout", "300", *options)


@pytest.mark.parametrize("suite", SUITES)
def test_suite_passes(pytester: pytest.Pytester, suite: str) -> None:
    everywhere, ours = SUITES[suite]
    run(pytester, suite).assert_outcomes(passed=everywhere + ours)


@pytest.mark.parametrize("suite", SUITES)
def test_suite_passes_on_apache_kafka(pytester: pytest.Pytester, suite: str) -> None:
    """As it stands; what kohort alone can do is skipped by name."""
    everywhere, ours = SUITES[suite]
    with ApacheKafka({"group.initial.rebalance.delay.ms": 0}) as peer:
        done = run(pytester, suite, "-rs", "--kohort-bootstrap", f"127.0.0.1:{peer.port}")
    done.assert_outcomes(passed=everywhere, skipped=ours)
    if ours:
        done.stdout.fnmatch_lines(["*SKIPPED*this needs kohort's own broker in the test's process*"])


@pytest.mark.parametrize("mark", ["asyncio", "anyio"])
def test_nothing_is_left_of_a_thousand_async_tests(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    """No thread, file, socket, member, group or topic, in either worker; by pytest-asyncio, and by anyio's plugin."""
    count = at_depth(20, 1000)
    monkeypatch.setenv("TMPDIR", str(pytester.mkdir("temporary")))
    pytester.makepyfile(MANY.format(mark=mark, count=count))
    others = {"asyncio": "anyio", "anyio": "asyncio"}
    done = pytester.runpytest_subprocess("-n", "2", "-p", f"no:{others[mark]}", "--timeout", "120")
    done.assert_outcomes(passed=count)
