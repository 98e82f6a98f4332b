"""The how-tos that secure a broker, as a reader follows them: from nothing to clients that are let in, and refused.

A block of properties or Python whose first line is `# NAME.SUFFIX` is that file. `kohort up` is the one block of bash:
it runs until the page ends. All others are run in order and print what the text block behind them says.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import kohort
from support.builders.site import PAGES
from support.peers.cli import TIMEOUT_SECONDS, environment, run_kohort, started
from support.peers.kafka_tools import run_kafka_tool
from support.peers.secured import PASSWORD, USER, login, quoted
from support.peers.secured_kohort import SecuredKohort
from support.ports import quiet_port

pytestmark = pytest.mark.interop

RECIPES = ("how-to/encrypt-connections.md", "how-to/log-in-by-scram.md", "how-to/log-in-by-oauth.md")
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
#: Kafka's scripts -> what they run.
KAFKA_TOOLS = {"kafka-configs": "kafka.admin.ConfigCommand", "kafka-acls": "org.apache.kafka.tools.AclCommand"}
_BLOCK = re.compile(
    r"^```(sh|bash|python|properties)\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE
)
_FILE = re.compile(r"# ([\w.]+\.\w+)\n")
_SHELL = f"""
python3() {{ {shlex.quote(sys.executable)} "$@"; }}
kohort() {{ python3 -m kohort.cli.main "$@"; }}
set -eo pipefail
"""


@pytest.mark.apache
def test_kafkas_tools_do_what_ours_do(tmp_path: Path) -> None:
    """Each row of the reference's table leaves the same users, rights and limits, and looks the same up."""
    section = PAGES["reference/access.md"].partition("## By Kafka's own tools")[2]
    rows = re.findall(r"^\| `kohort ([^`]*)` \| `([^`]*)` \|$", section, re.MULTILINE)
    assert len(rows) >= 9
    (properties,) = re.findall(r"^```properties\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    secret, config = tmp_path / "carol.secret", tmp_path / "client.properties"
    secret.write_text("builder\n")
    with (
        SecuredKohort({"authorizer.class.name": AUTHORIZER, "super.users": f"User:ANONYMOUS;User:{USER}"}) as secured,
        kohort.Admin(**login(secured, "SCRAM-SHA-512")) as admin,
    ):
        # In Java's properties a backslash stands twice.
        password = quoted(PASSWORD).replace("\\", "\\\\")
        config.write_text(properties.replace("ca.pem", str(secured.certificates.ca)).replace('"wonder"', password))
        at = ("--bootstrap-server", secured.bootstrap("SASL_SSL"), "--command-config", str(config))

        def state() -> list[str]:
            users = [f"{row.user} {row.mechanism}" for row in admin.describe_user_scram_credentials()]
            found = (users, admin.describe_acls(), admin.describe_client_quotas({"user": ...}))
            return [str(each) for rows in found for each in rows]

        by_ours, by_theirs = [state()], [state()]
        for line, _ in rows:
            run = run_kohort(*shlex.split(line.replace(secret.name, str(secret))), *at)
            assert (run.code, "carol" in run.out) == (0, True), f"{line}: {run}"
            by_ours.append(state())
        for _, line in rows:
            script, *words = shlex.split(line)
            run_kafka_tool(KAFKA_TOOLS[script], *words, *at)
            by_theirs.append(state())
        assert by_ours == by_theirs
        assert len({tuple(each) for each in by_ours}) >= 4


@pytest.mark.parametrize("page", RECIPES)
def test_recipe_works_from_nothing(page: str, tmp_path: Path) -> None:
    """With the clients that it names; the port of the page is one that is free here."""
    for needed in ("confluent_kafka", "cryptography", "jwt"):
        pytest.importorskip(needed)
    (written,) = set(re.findall(r"127\.0\.0\.1:(\d+)", PAGES[page]))
    real = str(quiet_port())
    text, ran = PAGES[page].replace(f"127.0.0.1:{written}", f"127.0.0.1:{real}"), 0
    env = environment()
    with contextlib.ExitStack() as stack:
        for language, code, shown in _BLOCK.findall(text):
            if file := _FILE.match(code):
                (tmp_path / file[1]).write_text(code)
            elif language == "bash":
                words = shlex.split(code)
                assert words[:2] == ["kohort", "up"]
                command = [sys.executable, "-m", "kohort.cli.main", *words[1:]]
                running = stack.enter_context(started(command, env=env, cwd=tmp_path))
                running.wait_for_lines(1)
            else:
                assert prints(language, code, tmp_path, env) == shown.replace(written, real), code
                ran += 1
    assert ran >= 2


def prints(language: str, code: str, directory: Path, env: Mapping[str, str]) -> str:
    """What a block prints; it has to end well."""
    command = ["bash", "-c", _SHELL + code] if language == "sh" else [sys.executable, "-c", code]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=directory, timeout=TIMEOUT_SECONDS, check=False, env=env
    )
    assert (done.returncode, done.stderr) == (0, ""), f"{code}\n{done.stdout}\n{done.stderr}"
    return done.stdout
