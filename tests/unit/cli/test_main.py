"""The command line's own words: verbs, hints for misspelt ones, NAME=VALUE pairs, exit codes."""

from __future__ import annotations

import argparse
import json
import re
import shlex
from functools import cache
from pathlib import Path

import pytest

from kohort import __version__
from kohort.cli.arguments import parse_pairs
from kohort.cli.bootstrap import DEFAULT_BOOTSTRAP, connection, settle_connection
from kohort.cli.main import VERBS, build_parser, main
from kohort.cli.parser import EXAMPLES
from kohort.errors import ConfigError
from kohort.records.kernel_form import tell_kernels
from support.peers.cli import foreign_words


@cache
def whole_parser() -> argparse.ArgumentParser:
    """The parser of all verbs: to build it takes longer than most of these tests."""
    return build_parser()


def complaint(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a command line that cannot be parsed ends with on the error output; its exit code must be 2."""
    with pytest.raises(SystemExit) as exit_:
        main(words)
    assert exit_.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


def test_pairs_are_split_at_the_first_equals_sign() -> None:
    assert parse_pairs(["num.partitions=3", " a = b=c ", "empty="], option="--config") == {
        "num.partitions": "3",
        "a": "b=c",
        "empty": "",
    }


def test_the_last_of_equal_names_wins() -> None:
    assert parse_pairs(["a=1", "a=2"], option="--config") == {"a": "2"}


@pytest.mark.parametrize("pair", ["num.partitions", "=3", "", " =3"])
def test_a_pair_without_name_or_equals_sign_is_refused(pair: str) -> None:
    with pytest.raises(ConfigError, match=r"^--config '.*' is not NAME=VALUE$"):
        parse_pairs([pair], option="--config")


@pytest.mark.parametrize(
    ("words", "nearest"),
    [
        (["tpic"], "topic"),
        (["topic", "lst"], "list"),
        (["topic", "creat", "orders"], "create"),
        (["topic", "create", "orders", "--partition", "3"], "--partitions"),
        (["topic", "create", "orders", "--partition=3"], "--partitions"),
        (["tail", "orders", "--cuont", "3"], "--count"),
        (["tail", "orders", "--from", "begining"], "beginning"),
        (["group", "list", "--boostrap", "h:1"], "--bootstrap"),
        (["up", "--data-directory", "x"], "--data-dir"),
    ],
    ids=" ".join,
)
def test_a_misspelt_word_is_answered_with_the_nearest(
    words: list[str], nearest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert complaint(words, capsys).endswith(f"; did you mean {nearest}?")


def test_a_word_like_no_other_gets_no_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean" not in complaint(["xyzzy"], capsys)


def test_an_option_is_not_taken_for_its_longer_namesake(capsys: pytest.CaptureFixture[str]) -> None:
    """A shortened option would change its meaning with the next option that is added."""
    assert "--boot" in complaint(["topic", "list", "--boot", "h:1"], capsys)


@pytest.mark.parametrize("words", [["topic"], ["group"], ["send"], ["tail"], ["topic", "create"]], ids=" ".join)
def test_a_command_line_that_ends_early_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert "required" in complaint(words, capsys)


def test_kohort_alone_says_what_to_do_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out, err = capsys.readouterr()
    steps = [line.split()[:2] for line in out.splitlines() if line.startswith("  kohort ")]
    assert steps == [["kohort", verb] for verb in ("up", "tail", "group", "demo")]
    assert err == ""
    assert max(map(len, out.splitlines())) < 80


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        ("consume orders", "kohort tail TOPIC"),
        ("-C -t orders", "kohort tail TOPIC"),
        ("produce orders", "kohort send TOPIC"),
        ("topics", "kohort topic list"),
        ("-L", "kohort topic list"),
        ("groups", "kohort group list"),
        ("consumer-groups --list", "kohort group list"),
        ("lag billing", "kohort group describe GROUP"),
        ("group lag billing", "kohort group describe GROUP"),
        ("group offsets billing", "kohort group describe GROUP"),
        ("group reset billing", "kohort group reset-offsets GROUP"),
        ("group seek billing", "kohort group reset-offsets GROUP"),
        ("topic ls", "kohort topic list"),
        ("topic consume orders", "kohort tail TOPIC"),
        ("topic add-partitions orders", "kohort topic grow TOPIC"),
        ("start", "kohort up"),
        ("help", "kohort --help"),
    ],
)
def test_a_verb_of_another_tool_is_answered_with_ours(
    words: str, ours: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert ours in err


@pytest.mark.large
@pytest.mark.parametrize("words", foreign_words(), ids=" ".join)
def test_no_foreign_word_hides_one_of_ours(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        whole_parser().parse_args([*words, "--help"] if not words[0].startswith("-") else words)
    assert exit_.value.code == 2, "argparse knows it"
    capsys.readouterr()


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        ("tail -t orders", "kohort tail TOPIC"),
        ("tail orders -g billing", "tail reads without a group"),
        ("tail orders --property print.key=true", "use --keys"),
        ("tail orders --timeout-ms 1000", "use --exit"),
        ("send --topic orders", "kohort send TOPIC"),
        ("topic create orders --replicas 3", "use --replication-factor"),
    ],
)
def test_an_option_of_another_tool_is_answered_with_ours(
    words: str, instead: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert instead in complaint(words.split(), capsys)


@pytest.mark.parametrize(
    "words",
    [
        "-b h:1",
        "--bootstrap h:1",
        "--brokers h:1",
        "--bootstrap-server h:1",
        "--bootstrap-servers=h:1",
        "--broker-list h:1",
    ],
)
@pytest.mark.parametrize("verb", ["tail t", "send t", "topic list", "group list", "group history g"])
def test_the_address_has_the_names_of_other_tools(verb: str, words: str) -> None:
    assert whole_parser().parse_args([*verb.split(), *words.split()]).bootstrap == "h:1"


def settled(*words: str) -> argparse.Namespace:
    """A command line, and what stands in for what it does not say."""
    options = whole_parser().parse_args(words)
    settle_connection(options)
    return options


def test_the_address_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOHORT_BOOTSTRAP", "h:2")
    assert settled("topic", "list").bootstrap == "h:2"
    assert settled("topic", "list", "-b", "h:1").bootstrap == "h:1"
    monkeypatch.setenv("KOHORT_BOOTSTRAP", "")
    assert settled("topic", "list").bootstrap == DEFAULT_BOOTSTRAP


def test_client_options_come_from_a_file_and_one_by_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file of Kafka's tools, which may have options for other programs as well; what is said last counts."""
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=h:3\nssl.cafile=ca.pem\nlinger.ms=5\nclient.id=file\n")
    options = settled("topic", "list", "-F", str(file), "-X", "client_id=me")
    assert options.bootstrap == "h:3"
    assert connection(options) == {"bootstrap.servers": "h:3", "ssl.ca.location": "ca.pem", "client.id": "me"}

    monkeypatch.setenv("KOHORT_COMMAND_CONFIG", str(file))
    assert settled("group", "list", "-b", "h:1").settings["ssl.ca.location"] == "ca.pem"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-X", "sasl.pasword=hidden"], "unknown admin option sasl.pasword; did you mean sasl.password?"),
        (["-X", "sasl.password:hidden"], "-X is followed by what is not NAME=VALUE"),
        (["--command-config", "/nowhere"], "configuration file /nowhere cannot be read"),
        (["-X", "bootstrap.servers=x"], "'x' is not host:port"),
    ],
)
def test_client_option_that_is_none_is_refused(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anybody is asked; without its value."""
    assert main(["topic", "list", *words]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert "hidden" not in said


def test_an_address_that_is_none_is_refused_with_its_origin(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "argument -b/--bootstrap: 'x' is not host:port" in complaint(["topic", "list", "-b", "x"], capsys)
    monkeypatch.setenv("KOHORT_BOOTSTRAP", "y")
    assert main(["topic", "list"]) == 2
    assert "'y' is not host:port, for example 127.0.0.1:9092 (from KOHORT_BOOTSTRAP)" in capsys.readouterr().err


@pytest.mark.large
@pytest.mark.parametrize("verb", EXAMPLES)
def test_the_example_of_every_help_can_be_typed(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = verb.split()[1:]
    with pytest.raises(SystemExit):
        main([*words, "--help"])
    shown = capsys.readouterr().out.rpartition("example:\n  ")[2].strip()
    assert shown == EXAMPLES[verb]
    command = re.search(r"kohort [^|)]*", shown)
    assert command is not None
    parsed = whole_parser().parse_args(shlex.split(command[0])[1:])
    assert parsed.verb == words[0]


def test_memory_and_a_directory_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert "not allowed with" in complaint(["up", "--in-memory", "--data-dir", "x"], capsys)


def test_every_verb_says_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    build_parser().print_help()
    shown = capsys.readouterr().out
    for verb in VERBS:
        assert re.search(rf"^    {verb}\s+\w", shown, re.MULTILINE)


@pytest.mark.large
def test_verbs_with_a_cluster_have_the_same_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KOHORT_BOOTSTRAP", raising=False)
    for words in (["topic", "list"], ["group", "list"], ["tail", "t"], ["send", "t"]):
        assert settled(*words).bootstrap == DEFAULT_BOOTSTRAP


@pytest.mark.parametrize(
    "words",
    [
        [],
        *([verb] for verb in VERBS),
        *(
            ["topic", action]
            for action in ("create", "list", "describe", "grow", "offsets", "delete-records", "delete")
        ),
        *(["config", action] for action in ("describe", "alter")),
        *(["group", action] for action in ("list", "describe", "history", "config", "delete")),
    ],
    ids=lambda words: " ".join(words) or "kohort",
)
def test_every_verb_explains_itself(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main([*words, "--help"])
    assert exit_.value.code == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"usage: {' '.join(['kohort', *words])} ")
    assert "show this help message" in out
    assert err == ""


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["--version"])
    assert exit_.value.code == 0
    told = capsys.readouterr().out
    assert " ".join(told.split()) == f"kohort {__version__}, kernels: {tell_kernels()}"
    for words in (["--version", "--json"], ["--json", "--version"]):
        assert main(words) == 0
        assert json.loads(capsys.readouterr().out) == {"version": __version__, "kernels": tell_kernels()}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("up", "--set", "num.partitions=3"), "--set num.partitions=3; use --config NAME=VALUE, or --config-file FILE"),
        (("group", "reset-offsets", "g", "--from-file", "/nope"), "/nope cannot be opened: No such file or directory"),
    ],
)
def test_sentence_says_what_is_wrong_and_what_to_use(
    words: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(words)
    except SystemExit as exit_:
        code = int(exit_.code or 0)
    assert code != 0
    told = capsys.readouterr().err
    assert told.startswith("kohort: ")
    assert told.endswith(f"{says}\n")
