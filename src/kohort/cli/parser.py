"""argparse with errors of one sentence, the nearest known word, and an example in every help.

Law: no verb runs under another tool's name. The error for a name of kcat, rpk, kaf or Kafka's scripts names kohort's
verb, so that scripts use kohort's names only.
Source: kcat 1.7, rpk's and kaf's help, kafka-console-consumer, kafka-consumer-groups and kafka-topics of Kafka 4.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any, Final, NoReturn

from kohort.cli.output import complain

#: Verb -> the command line that its help shows; docs/reference/cli.md has the rest.
EXAMPLES: Final = {
    "kohort up": "kohort up --data-dir ./kohort-data",
    "kohort broker": "kohort broker status",
    "kohort top": "kohort top -b 127.0.0.1:9092 --group billing",
    "kohort broker status": "kohort broker status",
    "kohort topic": "kohort topic list",
    "kohort topic create": "kohort topic create orders --partitions 4",
    "kohort topic list": "kohort topic list",
    "kohort topic describe": "kohort topic describe orders",
    "kohort topic grow": "kohort topic grow orders --partitions 8",
    "kohort topic offsets": "kohort topic offsets orders --at 2h",
    "kohort topic delete-records": "kohort topic delete-records orders:0,1 --older-than 7d --execute",
    "kohort topic delete": "kohort topic delete orders",
    "kohort send": "printf 'k1:one\\nk2:two\\n' | kohort send orders -K : -H source=shell",
    "kohort tail": "kohort tail orders --from -10 --exit -f '%t-%p@%o %k: %s\\n'",
    "kohort group": "kohort group list",
    "kohort group list": "kohort group list",
    "kohort group describe": "kohort group describe billing",
    "kohort group config": "kohort group config billing consumer.session.timeout.ms=10000",
    "kohort group history": "kohort group history billing --follow",
    "kohort group why": "kohort group why billing --last",
    "kohort group move": "kohort group move billing orders-3 --to worker-2 --wait",
    "kohort group static": "kohort group static billing --registration-timeout 15m --expansion-timeout 1m",
    "kohort group dynamic": "kohort group dynamic billing",
    "kohort group rebalance": "kohort group rebalance billing",
    "kohort group reset-offsets": "kohort group reset-offsets billing --by-duration 2h --execute",
    "kohort group delete-offsets": "kohort group delete-offsets billing --topic orders:0,1 --execute",
    "kohort group remove-members": "kohort group remove-members billing worker-2 --execute",
    "kohort group delete": "kohort group delete billing",
    "kohort cluster": "kohort cluster describe",
    "kohort cluster describe": "kohort cluster describe --fenced",
    "kohort cluster features": "kohort cluster features group.version=1 --execute",
    "kohort cluster quorum": "kohort cluster quorum",
    "kohort cluster log-dirs": "kohort cluster log-dirs --topic orders",
    "kohort cluster reassign": "kohort cluster reassign orders-0=1,2 orders-1=2,3 --execute",
    "kohort cluster elect-leaders": "kohort cluster elect-leaders --execute",
    "kohort transactions": "kohort transactions list",
    "kohort transactions list": "kohort transactions list --state Ongoing --longer-than 60000",
    "kohort transactions describe": "kohort transactions describe billing-1",
    "kohort transactions hanging": "kohort transactions hanging orders",
    "kohort transactions abort": "kohort transactions abort orders-0 --start-offset 17 --execute",
    "kohort transactions fence": "kohort transactions fence billing-1 --execute",
    "kohort config": "kohort config describe topic orders",
    "kohort config describe": "kohort config describe broker 1 --all",
    "kohort config alter": "kohort config alter topic orders retention.ms=60000 --append cleanup.policy=compact",
    "kohort acl": "kohort acl list",
    "kohort acl list": "kohort acl list --topic orders --match",
    "kohort acl add": "kohort acl add --principal alice --operation read --topic orders --group billing",
    "kohort acl remove": "kohort acl remove --principal alice --execute",
    "kohort user": "kohort user list",
    "kohort user list": "kohort user list",
    "kohort user set-password": "kohort user set-password alice --password-file alice.secret",
    "kohort user add": "kohort user add alice --file users --password-file alice.secret",
    "kohort user remove": "kohort user remove alice --execute",
    "kohort token": "kohort token inspect --token-file alice.token",
    "kohort token mint": "kohort token mint --keys ./kohort-data/capability.keys --topic orders --lease 7d",
    "kohort token attenuate": "kohort token attenuate --token-file alice.token --topic orders --lease 1h",
    "kohort token inspect": "kohort token inspect --token-file alice.token",
    "kohort token rotate": "kohort token rotate --keys ./kohort-data/capability.keys --execute",
    "kohort quota": "kohort quota list",
    "kohort quota list": "kohort quota list --user alice",
    "kohort quota set": "kohort quota set --user alice producer_byte_rate=1000000 request_percentage=",
    "kohort tls": "kohort tls make ./tls",
    "kohort tls make": "kohort tls make ./tls --host broker.example --client alice",
    "kohort log": "kohort log check ./kohort-data",
    "kohort log check": "kohort log check ./kohort-data",
    "kohort log repair": "kohort log repair ./kohort-data --execute",
    "kohort log dump": "kohort log dump ./kohort-data/orders-0 --records",
    "kohort log import": "kohort log import /var/lib/kafka --into ./kohort-data",
    "kohort console": "kohort console -b 127.0.0.1:9092",
    "kohort report": "kohort report billing --since 2h --out report.html",
    "kohort demo": "kohort demo --no-spark",
    "kohort completion": 'eval "$(kohort completion bash)"',
}


class Parser(argparse.ArgumentParser):
    """An argparse parser with errors of one sentence and the nearest known word for an unknown one.

    `run`: the function of the verb or action.
    """

    def __init__(self, *, run: Callable[[argparse.Namespace], int] | None = None, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)
        if run is not None:
            self.set_defaults(run=run)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does, but raise the error for unknown arguments from the verb's parser."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown and not self._took_late(parsed, unknown):
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return parsed, []

    def _took_late(self, parsed: argparse.Namespace, words: list[str]) -> bool:
        """Return whether words after options could join a list before them, as in `move G --to M t-0`."""
        lists = [action for action in self._actions if not action.option_strings and action.nargs == "*"]
        if not lists or any(word.startswith("-") for word in words):
            return False
        (into,) = lists
        try:
            late = [self._get_value(into, word) for word in words]
        except argparse.ArgumentError as why:
            self.error(str(why))
        setattr(parsed, into.dest, [*getattr(parsed, into.dest), *late])
        return True

    def format_help(self) -> str:
        """Format the help as argparse does, with an example at the end."""
        example = EXAMPLES.get(self.prog)
        return super().format_help() + (f"\nexample:\n  {example}\n" if example else "")

    def error(self, message: str) -> NoReturn:
        complain(message + self._hint(message))
        sys.exit(2)

    def _hint(self, message: str) -> str:
        if "did you mean" in message:
            return ""
        words = unknown_words(message)
        for word in words:
            instead = _OPTIONS.get(self.prog, {}).get(word)
            if instead:
                return f"; {instead}"
        known = [option for action in self._actions for option in action.option_strings]
        known += [str(choice) for action in self._actions for choice in (action.choices or ())]
        near = [hit for word in words for hit in get_close_matches(word, known, n=1, cutoff=0.65)]
        return f"; did you mean {near[0]}?" if near else f"; see {self.prog} --help"


def unknown_words(message: str) -> list[str]:
    """Return the words that an error of argparse is about: a wrong choice, or unrecognized options."""
    choice = re.search(r"invalid choice: '(.*?)' \(choose from", message)
    if choice:
        return [choice[1]]
    _, found, rest = message.partition("unrecognized arguments: ")
    return [word.partition("=")[0] for word in rest.split() if word.startswith("-")] if found else []


_TAIL: Final = "kohort tail TOPIC"
_SEND: Final = "kohort send TOPIC"
_TOPICS: Final = "kohort topic list"
_GROUPS: Final = "kohort group list"
_LAG: Final = "kohort group describe GROUP (offsets, lag and owner of every partition)"
_CHANGE: Final = "kohort config alter topic TOPIC NAME=VALUE"
_RESET: Final = "is not a word of kohort; use: kohort group reset-offsets GROUP --to-earliest (or --by-duration, ...)"


def _all(words: str, ours: str) -> dict[str, str]:
    return dict.fromkeys(words.split(), f"is not a word of kohort; use: {ours}")


#: The words before -> another tool's word -> the end of the error about it.
_VERBS: Final[dict[str, dict[str, str]]] = {
    "kohort": {
        **_all("consume consumer console-consumer read cat subscribe -C --consumer", _TAIL),
        **_all("produce producer console-producer publish pub write -P --producer", _SEND),
        **_all("topics ls list -L metadata", _TOPICS),
        **_all("groups consumer-groups consumergroups -G", _GROUPS),
        **_all("lag offsets", _LAG),
        **_all("describe show", "kohort topic describe TOPIC, or kohort group describe GROUP"),
        **_all("create", "kohort topic create TOPIC"),
        **_all("delete rm", "kohort topic delete TOPIC, or kohort group delete GROUP"),
        **_all("history", "kohort group history GROUP"),
        **_all("node nodes brokers", "kohort cluster describe"),
        **_all("features quorum log-dirs reassign elect-leaders", "kohort cluster ACTION"),
        **_all("txn", "kohort transactions ACTION"),
        **_all("why explain", "kohort group why GROUP"),
        **_all("start server serve run container", "kohort up"),
        **_all("fsck", "kohort log check DIR"),
        **_all("repair", "kohort log repair DIR"),
        **_all("dump dump-log", "kohort log dump PATH"),
        **_all("status health", "kohort broker status"),
        **_all("stop down", "Ctrl-C where kohort up runs, or kill (SIGTERM) with its process id"),
        **_all("ui web dashboard watch", "kohort console (in a browser), or kohort top (here)"),
        **_all("help", "kohort --help"),
        **_all("version", "kohort --version"),
        **dict.fromkeys(("reset", "seek", "reset-offsets"), _RESET),
        **_all("acls", "kohort acl list"),
        **_all("users scram", "kohort user list"),
        **_all("quotas", "kohort quota list"),
    },
    "acl": {
        **_all("ls describe show", "kohort acl list"),
        **_all("create new allow grant", "kohort acl add --principal NAME --operation WORD --topic NAME"),
        **_all("deny", "kohort acl add --deny --principal NAME --operation WORD --topic NAME"),
        **_all("delete rm revoke", "kohort acl remove --principal NAME --topic NAME"),
    },
    "user": {
        **_all("ls describe show", "kohort user list"),
        **_all("create new update passwd alter", "kohort user set-password USER"),
        **_all("delete rm", "kohort user remove USER"),
    },
    "token": {
        **_all("create new make add", "kohort token mint --keys FILE"),
        **_all("show describe decode explain verify", "kohort token inspect"),
        **_all("narrow restrict derive", "kohort token attenuate"),
    },
    "quota": {
        **_all("ls describe show", "kohort quota list"),
        **_all("alter add create update", "kohort quota set --user NAME producer_byte_rate=VALUE"),
        **_all("delete rm remove", "kohort quota set --user NAME producer_byte_rate="),
    },
    "group": {
        **_all("lag offsets offset status state show info get members", _LAG),
        **_all("ls", _GROUPS),
        **_all("rm remove", "kohort group delete GROUP"),
        **_all("events log", "kohort group history GROUP"),
        **_all("explain", "kohort group why GROUP"),
        **_all("set alter alter-config", "kohort group config GROUP NAME=VALUE"),
        **_all("create join", "a consumer with this group_id; a group is there as soon as a member joins it"),
        **_all("consume", _TAIL),
        **dict.fromkeys(("reset", "seek", "commit", "set-offsets", "edit-offsets"), _RESET),
    },
    "config": {
        **_all("ls list show get", "kohort config describe KIND NAME"),
        **_all("set edit change", "kohort config alter KIND NAME CONFIG=VALUE"),
    },
    "topic": {
        **_all("ls", _TOPICS),
        **_all("rm remove", "kohort topic delete TOPIC"),
        **_all("show info get", "kohort topic describe TOPIC"),
        **_all("new add", "kohort topic create TOPIC"),
        **_all("consume read tail", _TAIL),
        **_all("produce write send", _SEND),
        **_all("alter alter-config config set-config set", _CHANGE),
        **_all("add-partitions partitions", "kohort topic grow TOPIC --partitions N"),
        **_all("trim-prefix trim truncate", "kohort topic delete-records TOPIC --before-offset N"),
    },
}

_TOPIC_OPTIONS: Final = ("-t", "--topic")
#: Verb -> another tool's option -> the hint to kohort's option.
_OPTIONS: Final[dict[str, dict[str, str]]] = {
    "kohort up": dict.fromkeys(
        ("--set", "--override", "-o", "-X", "--property"), "use --config NAME=VALUE, or --config-file FILE"
    ),
    "kohort tail": {
        **dict.fromkeys(_TOPIC_OPTIONS, f"the topic stands by itself: {_TAIL}"),
        **dict.fromkeys(
            ("-g", "--group", "-G"),
            "tail reads without a group and commits nothing; kohort.Consumer(group_id=...) reads as a member",
        ),
        **dict.fromkeys(("-u", "-q", "--follow", "--tail"), "tail follows and writes every record at once as it is"),
        "--property": "use --keys, --headers or --format",
        "--formatter-property": "use --keys, --headers or --format",
        "--timeout-ms": "use --exit, which stops at the end of what is there",
        "-C": "tail is what reads, without -C",
    },
    "kohort send": {
        **dict.fromkeys(_TOPIC_OPTIONS, f"the topic stands by itself: {_SEND}"),
        **dict.fromkeys(("--property", "--reader-property"), "use --key-separator, --key or --header"),
        "-P": "send is what writes, without -P",
    },
    "kohort acl add": {
        **dict.fromkeys(("--allow-principal", "--deny-principal"), "use --principal NAME, with --deny to deny"),
        **dict.fromkeys(("--allow-host", "--deny-host"), "use --host ADDRESS"),
        **dict.fromkeys(("--resource-pattern-type", "--pattern"), "use --prefix for names that are beginnings"),
        **dict.fromkeys(("--consumer", "--producer"), "use --operation read with --topic and --group, or write"),
    },
    "kohort group describe": {"--group": "the group stands by itself: kohort group describe GROUP"},
    "kohort topic create": {
        "--topic": "the topic stands by itself: kohort topic create TOPIC",
        **dict.fromkeys(("-r", "--replicas"), "use --replication-factor N"),
        "--replica-assignment": "use --assign 1:2,2:3",
        **dict.fromkeys(("-c", "--topic-config"), "use --config NAME=VALUE"),
    },
}


def instead_of_words(words: Sequence[str]) -> str | None:
    """Return the error for a command line that begins with a word of another tool; else `None`."""
    room = words[0] if words and words[0] in _VERBS else "kohort"
    word = next(iter(words[1:] if room != "kohort" else words), "")
    said = _VERBS[room].get(word)
    return said and f"{word} {said}"
