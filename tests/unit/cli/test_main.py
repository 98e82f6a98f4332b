"""The command line's own words: verbs, hints for misspelt ones, NAME=VALUE pairs, exit codes."""

from __future__ import annotations

import pytest

from kohort import __version__
from kohort.cli.main import DEFAULT_BOOTSTRAP, VERBS, build_parser, main, parse_pairs
from kohort.errors import ConfigError


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


@pytest.mark.parametrize("words", [[], ["topic"], ["group"], ["send"], ["tail"], ["topic", "create"]], ids=" ".join)
def test_a_command_line_that_ends_early_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert "required" in complaint(words, capsys)


def test_memory_and_a_directory_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert "not allowed with" in complaint(["up", "--in-memory", "--data-dir", "x"], capsys)


def test_every_verb_says_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    build_parser().print_help()
    shown = capsys.readouterr().out
    for verb in VERBS:
        assert f"    {verb} " in shown


def test_verbs_with_a_cluster_have_the_same_default() -> None:
    parser = build_parser()
    for words in (["topic", "list"], ["group", "list"], ["tail", "t"], ["send", "t"]):
        assert parser.parse_args(words).bootstrap == DEFAULT_BOOTSTRAP


@pytest.mark.parametrize(
    "words",
    [
        [],
        *([verb] for verb in VERBS),
        *(["topic", action] for action in ("create", "list", "describe", "delete")),
        *(["group", action] for action in ("list", "describe", "delete")),
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
    assert capsys.readouterr().out == f"kohort {__version__}\n"
