"""`kohort completion SHELL`: a completion script for a shell, generated from the parser.

When the user presses Tab, the script lists the topics and groups of the broker in `KOHORT_BOOTSTRAP`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

SHELLS: Final = ("bash", "zsh", "fish")
#: Metavar of an argument -> the command that lists its values.
_NAMES: Final = {
    "TOPIC": "kohort topic list 2>/dev/null",
    "GROUP": "kohort group list --brief 2>/dev/null",
}
#: The command that prints the names in such a list; the first line of the list has the headings.
_FIRST_COLUMN: Final = "awk 'NR > 1 {print $1}'"
#: Verbs whose operand is a new name, so that no existing names are suggested.
_NEW_NAMES: Final = frozenset({("topic", "create")})


def add_parser(subparsers: Any) -> None:
    """Add the verb to the command line."""
    completion = subparsers.add_parser(
        "completion",
        help="print a script that completes kohort's command lines in a shell",
        description="Print a script for the shell: eval it in ~/.bashrc or ~/.zshrc (there after compinit); for fish, "
        "write it to ~/.config/fish/completions/kohort.fish.",
        run=run,
    )
    completion.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish")


def run(options: argparse.Namespace) -> int:
    """Print the script."""
    from kohort.cli.main import build_parser

    verbs = list(describe(build_parser()))
    print({"bash": bash_script, "zsh": zsh_script, "fish": fish_script}[options.shell](verbs), end="")
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option with its spellings; `values`: its choices, empty if it takes any value or none."""

    names: tuple[str, ...]
    values: tuple[str, ...]
    takes_value: bool
    help: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """A verb and the words that may follow it; `names`: the command that lists its operands, or `None`."""

    path: tuple[str, ...]
    words: dict[str, str]
    options: tuple[Option, ...]
    names: str | None


def describe(parser: argparse.ArgumentParser, path: tuple[str, ...] = ()) -> Iterator[Verb]:
    """Yield each verb of a command, parents first; options hidden from the help are left out."""
    words: dict[str, str] = {}
    options: list[Option] = []
    names: str | None = None
    below: list[Verb] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            words.update({choice.dest: choice.help or "" for choice in action._choices_actions})
            for word, inner in action.choices.items():
                below += describe(inner, (*path, word))
        elif not action.option_strings:
            words.update(dict.fromkeys(map(str, action.choices or ()), ""))
            if path not in _NEW_NAMES:
                names = _NAMES.get(str(action.metavar), names)
        elif action.help != argparse.SUPPRESS:
            options.append(
                Option(
                    names=tuple(action.option_strings),
                    values=tuple(map(str, action.choices or ())),
                    takes_value=action.nargs != 0,
                    help=(action.help or "").partition(";")[0].partition(":")[0].replace("%%", "%"),
                )
            )
    yield Verb(path=path, words=words, options=tuple(options), names=names)
    yield from below


def bash_script(verbs: list[Verb]) -> str:
    """Build the script for bash, without the package bash-completion."""
    return f"""\
_kohort() {{
    local -a line=("${{COMP_WORDS[@]}}")
    local word=${{line[COMP_CWORD]}} before=${{line[COMP_CWORD-1]}} verb= found= names=
    {_VERB.format(first="1", second="2", last="COMP_CWORD", rooms=_rooms(verbs))}
    case "$verb $before" in
{_value_cases(verbs, then='COMPREPLY=($(compgen -W "$found" -- "$word")); return')}
    esac
    case $verb in
{_word_cases(verbs)}
    esac
    if [[ -n $names && $word != -* ]]; then found="$found $(eval "$names" | {_FIRST_COLUMN})"; fi
    COMPREPLY=($(compgen -W "$found" -- "$word"))
}}
complete -F _kohort kohort
"""


def zsh_script(verbs: list[Verb]) -> str:
    """Build the script for zsh, for its own completion system."""
    # zsh's arrays begin at 1.
    return f"""\
#compdef kohort
_kohort() {{
    local -a line=("${{words[@]}}")
    local word=${{line[CURRENT]}} before=${{line[CURRENT-1]}} verb= found= names=
    {_VERB.format(first="2", second="3", last="CURRENT", rooms=_rooms(verbs))}
    case "$verb $before" in
{_value_cases(verbs, then="compadd -- ${=found}; return")}
    esac
    case $verb in
{_word_cases(verbs)}
    esac
    if [[ -n $names && $word != -* ]]; then found="$found $(eval "$names" | {_FIRST_COLUMN})"; fi
    compadd -- ${{=found}}
}}
compdef _kohort kohort
"""


#: Shell code that sets `verb`: the first word, and the second if the first is a verb with actions, as `group`.
_VERB: Final = (
    "if (( {last} > {first} )); then verb=${{line[{first}]}}; fi\n"
    '    if [[ " {rooms} " == *" $verb "* ]] && (( {last} > {second} )); then\n'
    '        verb="$verb ${{line[{second}]}}"\n'
    "    fi"
)


def _rooms(verbs: list[Verb]) -> str:
    """Return the verbs that have actions, separated by spaces."""
    return " ".join(dict.fromkeys(verb.path[0] for verb in verbs if len(verb.path) > 1))


def _value_cases(verbs: list[Verb], *, then: str) -> str:
    """Build a case for each option with a value: its possible values; `then` offers them."""
    lines = []
    for verb in verbs:
        for option in verb.options:
            if option.takes_value:
                names = "|".join(f'"{" ".join(verb.path)} {name}"' for name in option.names)
                lines.append(f'        {names}) found="{" ".join(option.values)}"; {then} ;;')
    return "\n".join(lines)


def _word_cases(verbs: list[Verb]) -> str:
    """Build a case for each verb: the words that may follow it."""
    lines = []
    for verb in verbs:
        following = [*verb.words, *(name for option in verb.options for name in option.names if name.startswith("--"))]
        names = f'; names="{verb.names}"' if verb.names else ""
        lines.append(f'        "{" ".join(verb.path)}") found="{" ".join(following)}"{names} ;;')
    return "\n".join(lines)


def fish_script(verbs: list[Verb]) -> str:
    """Build the script for fish, with the help text of each word."""
    lines = ["complete -c kohort -f"]
    for verb in verbs:
        when = f"-n {_quote(_fish_condition(verb))}"
        for word, meaning in verb.words.items():
            lines.append(f"complete -c kohort {when} -a {word} -d {_quote(meaning)}")
        if verb.names:
            lines.append(f"complete -c kohort {when} -a {_quote(f'({verb.names} | {_FIRST_COLUMN})')}")
        for option in verb.options:
            spelt = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
            values = f" -x -a {_quote(' '.join(option.values))}" if option.values else " -x" * option.takes_value
            lines.append(f"complete -c kohort {when} {spelt}{values} -d {_quote(option.help)}")
    return "\n".join(lines) + "\n"


def _fish_condition(verb: Verb) -> str:
    seen = " && ".join(f"__fish_seen_subcommand_from {word}" for word in verb.path) or "true"
    inner = " ".join(verb.words) if len(verb.path) < 2 and verb.path != ("completion",) else ""
    return f"{seen} && not __fish_seen_subcommand_from {inner}" if inner else seen


def _quote(text: str) -> str:
    """Quote text in single quotes, as fish reads them."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
