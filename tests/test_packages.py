"""What is published of kohort: metadata, the README's links and first minute, the files of the sdist, the Pythons.

`tests/interop/test_wheels.py` builds and installs the packages: `make soak ONLY=packages`.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from email.message import Message
from email.parser import Parser
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import pytest

import kohort
from kohort.cli.main import main

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


class Egg(NamedTuple):
    """What setuptools says of the checkout."""

    metadata: Message
    files: Sequence[str]


@pytest.fixture(scope="module")
def egg(tmp_path_factory: pytest.TempPathFactory) -> Egg:
    """The metadata and the files of an sdist, without making it."""
    if int(version("setuptools").partition(".")[0]) < 77:
        pytest.skip("setuptools is older than what builds kohort; tools/setup.sh installs a newer one")
    folder = tmp_path_factory.mktemp("egg")
    command = [sys.executable, "setup.py", "-q", "egg_info", "--egg-base", str(folder)]
    environment = {**os.environ, "CC": "false"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    (found,) = folder.glob("*.egg-info")
    files = (found / "SOURCES.txt").read_text().splitlines()
    return Egg(Parser().parsestr((found / "PKG-INFO").read_text()), files)


@pytest.mark.process
def test_metadata_says_where_the_project_is_and_what_it_is_for(egg: Egg) -> None:
    metadata = egg.metadata
    assert (metadata["Name"], metadata["Version"]) == ("kohort", kohort.__version__)
    assert {"Source", "Documentation", "Issues"} <= {
        line.partition(",")[0] for line in metadata.get_all("Project-URL", [])
    }
    assert metadata["Author"]
    assert "Framework :: Pytest" in metadata.get_all("Classifier", [])
    assert "dev" not in metadata.get_all("Provides-Extra", []), "what work on kohort needs is a dependency group"
    core = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert len(core) == 3, "the README says three small packages"


@pytest.mark.process
def test_links_of_the_published_readme_lead_to_files_of_this_version(egg: Egg) -> None:
    """Relative links are dead on an index."""
    links = re.findall(r"\]\(([^)#]+)", str(egg.metadata.get_payload()))
    base = f"{PROJECT['project']['urls']['Source']}/blob/v{kohort.__version__}/"
    inside = [link.removeprefix(base) for link in links if link.startswith(base)]
    assert len(inside) > 20
    assert [path for path in inside if not (ROOT / path).exists()] == []
    assert [link for link in links if "://" not in link] == []


@pytest.mark.process
def test_sdist_has_all_that_is_committed(egg: Egg) -> None:
    """All of tests, docs and examples: what is built of an sdist can be tested."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("this is no checkout of git")
    # What is deleted and not yet committed is in neither.
    committed = {name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()}
    assert committed - set(egg.files) == set()
    assert {name for name in egg.files if name.endswith((".so", ".pyc", ".c"))} == {"bench/generator.c"}


def test_each_python_has_a_wheel_a_classifier_and_a_job() -> None:
    names = [line.rpartition(" ")[2] for line in PROJECT["project"]["classifiers"] if ":: Python :: 3." in line]
    tags = [f"cp{name.replace('.', '')}" for name in names]
    assert PROJECT["tool"]["cibuildwheel"]["build"].split() == [f"{tag}-*" for tag in (*tags, f"{tags[-1]}t")]
    assert re.search(r"for version in (.*); do", (ROOT / "tools/test_all.sh").read_text())[1].split() == names  # type: ignore[index]


def first_minute() -> list[tuple[str, str]]:
    """(language, text) of the README's first blocks."""
    section = (ROOT / "README.md").read_text().partition("\n## In 60 seconds\n")[2].partition("\n## ")[0]
    return re.findall(r"```(\w+)\n(.*?)```", section, re.DOTALL)


def test_the_readmes_first_minute_works(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kohort_broker: kohort.Broker
) -> None:
    """A broker, a record, a group, and why; in this process, where `kohort up` is the fixture's broker."""
    address = kohort_broker.bootstrap_servers
    monkeypatch.setenv("KOHORT_BOOTSTRAP", address)
    (install, up, send, read, ask, in_tests) = first_minute()
    assert install[1].startswith("pip install kohort ")
    assert up == ("sh", "kohort up\n")
    record, _, command = send[1].partition(" | ")
    sent = shlex.split(record)[1]
    with kohort.Producer(bootstrap_servers=address) as producer:
        assert command == "kohort send orders\n"
        producer.send("orders", value=sent).result(10)
    exec(read[1].replace("127.0.0.1:9092", address), {})
    assert capsys.readouterr().out == f"orders 0 0 {sent.encode()!r}\n"
    for line in ask[1].splitlines():
        assert main(shlex.split(line, comments=True)[1:]) == 0
    told = capsys.readouterr().out
    assert re.search(r"^orders +0 +1 +1 +0", told, re.MULTILINE), told
    assert "because kohort left: orders:0 of kohort has no owner any more" in told, told
    names: dict[str, object] = {}
    exec(in_tests[1], names)
    test = names["test_orders"]
    assert callable(test)
    with kohort.Broker() as other:
        test(other)
