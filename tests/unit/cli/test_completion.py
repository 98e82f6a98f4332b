"""`kohort completion`: what a shell offers, asked of the shell itself."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from kohort.cli.main import VERBS, build_parser, main
from kohort.cli.verbs.completion import SHELLS, bash_script, describe
from support.peers.cli import environment

pytestmark = pytest.mark.process

#: Stands in for the command where names are asked of a broker.
KOHORT = "kohort() { printf 'NAME  MORE\\norders 1\\nreturns 2\\n'; }\n"


def offered(line: str, script: str) -> list[str]:
    """What bash offers behind these words."""
    words = " ".join(f"'{word}'" for word in line.split(" "))
    ask = f"{KOHORT}{script}\nCOMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _kohort\n"
    done = subprocess.run(
        ["bash", "--norc", "-c", ask + 'printf "%s\\n" "${COMPREPLY[@]}"'],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        env=environment(),
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.fixture(scope="module")
def script() -> str:
    return bash_script(list(describe(build_parser())))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("kohort t", {"topic", "tail"}),
        ("kohort topic ", {"create", "list", "describe", "delete", "--help"}),
        ("kohort topic de", {"describe", "delete"}),
        ("kohort topic describe ", {"orders", "returns", "--json"}),
        ("kohort tail r", {"returns"}),
        ("kohort tail orders --f", {"--format", "--from"}),
        ("kohort send orders -z l", {"lz4"}),
        ("kohort send orders --compression ", {"none", "gzip", "snappy", "lz4", "zstd"}),
        ("kohort group history re", {"returns"}),
        ("kohort config ", {"describe", "alter"}),
        ("kohort config alter ", {"topic", "broker", "group", "--append"}),
        ("kohort cluster re", {"reassign"}),
        ("kohort cluster features --downgrade ", {"safe", "unsafe"}),
        ("kohort completion ", {"bash", "zsh", "fish"}),
    ],
)
def test_bash_offers_what_may_follow(line: str, words: set[str], script: str) -> None:
    assert words <= set(offered(line, script))


@pytest.mark.parametrize("line", ["kohort topic create ", "kohort tail orders --count ", "kohort xyzzy "])
def test_bash_offers_no_names_where_none_is_asked_for(line: str, script: str) -> None:
    assert not {"orders", "returns"} & set(offered(line, script))


def test_what_the_help_does_not_show_is_not_offered(script: str) -> None:
    assert "--broker-list" not in script
    assert "--from-beginning" not in script


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_is_one_that_its_shell_reads(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script, err = capsys.readouterr()
    assert err == ""
    for verb in VERBS:
        assert verb in script
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    done = subprocess.run([shell, "-n", "/dev/stdin"], input=script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_fish_offers_what_may_follow() -> None:
    if shutil.which("fish") is None:
        pytest.skip("there is no fish here")
    ask = KOHORT.replace("kohort() {", "function kohort;").replace(" }\n", " end\n")
    from kohort.cli.verbs.completion import fish_script

    ask += fish_script(list(describe(build_parser())))
    for line, words in [
        ("kohort t", {"topic", "tail", "transactions"}),
        ("kohort topic de", {"describe", "delete", "delete-records"}),
        ("kohort tail r", {"returns"}),
        ("kohort send orders -z l", {"lz4"}),
        ("kohort group history --f", {"--follow"}),
    ]:
        done = subprocess.run(
            ["fish", "--no-config", "-c", f"{ask}\ncomplete --do-complete '{line}'"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
            env=environment(),
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert {row.split("\t")[0] for row in done.stdout.splitlines()} == words
