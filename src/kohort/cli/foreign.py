"""Names of kcat, rpk, kaf and Kafka's own scripts, and kohort's names for them.

Law: nothing is run under a foreign name. The answer names kohort's verb, so that scripts are written in one language.
Source: kcat 1.7, rpk's and kaf's help, kafka-console-consumer, kafka-consumer-groups and kafka-topics of Kafka 4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

_TAIL: Final = "kohort tail TOPIC"
_SEND: Final = "kohort send TOPIC"
_TOPICS: Final = "kohort topic list"
_GROUPS: Final = "kohort group list"
_LAG: Final = "kohort group describe GROUP (offsets, lag and owner of every partition)"
_CHANGE: Final = "kohort config alter topic TOPIC NAME=VALUE"
_RESET: Final = "is not a word of kohort; use: kohort group reset-offsets GROUP --to-earliest (or --by-duration, ...)"


def _all(words: str, ours: str) -> dict[str, str]:
    return dict.fromkeys(words.split(), f"is not a word of kohort; use: {ours}")


#: The words before -> the word -> the sentence about it.
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
        **_all("create new add update passwd alter", "kohort user set-password USER"),
        **_all("delete rm", "kohort user remove USER"),
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
        **_all("create join", "a consumer with this group_id; a group is there as soon as somebody joins it"),
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
#: Verb -> option -> what is said about it.
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
    """Answer a command line that begins with a word of another tool in one sentence; else `None`."""
    room = words[0] if words and words[0] in _VERBS else "kohort"
    word = next(iter(words[1:] if room != "kohort" else words), "")
    said = _VERBS[room].get(word)
    return said and f"{word} {said}"


def instead_of_option(verb: str, option: str) -> str | None:
    """Return the replacement of another tool's option; `None` for one that is not known."""
    return _OPTIONS.get(verb, {}).get(option)


def foreign_words() -> Iterator[tuple[str, ...]]:
    """Return every beginning of a command line that `instead_of_words` answers."""
    for room, table in _VERBS.items():
        for word in table:
            yield (word,) if room == "kohort" else (room, word)
