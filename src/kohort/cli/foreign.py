"""What people type who come from kcat, rpk, kaf or Kafka's own scripts, and what it is called here.

Law: nothing is run under a foreign name; it is answered with ours, so that scripts are written in one language.
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
_CHANGE: Final = "configs are given when a topic is made: kohort topic create TOPIC --config NAME=VALUE"
_RESET: Final = (
    "is not served yet; instead, while the group has no members, commit from Python: "
    'kohort.Consumer(group_id="GROUP").commit({kohort.TopicPartition("TOPIC", 0): OFFSET})'
)


def _all(words: str, ours: str) -> dict[str, str]:
    return dict.fromkeys(words.split(), f"is not a word of kohort; use: {ours}")


#: What stands before the word -> the word -> what is said about it.
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
        **_all("why explain", "kohort group why GROUP"),
        **_all("start server serve run broker container", "kohort up"),
        **_all("stop down", "Ctrl-C where kohort up runs, or kill (SIGTERM) with its process id"),
        **_all("help", "kohort --help"),
        **_all("version", "kohort --version"),
        **dict.fromkeys(("reset", "seek", "reset-offsets"), _RESET),
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
        **dict.fromkeys(("reset", "reset-offsets", "seek", "commit", "set-offsets", "edit-offsets"), _RESET),
    },
    "topic": {
        **_all("ls", _TOPICS),
        **_all("rm remove", "kohort topic delete TOPIC"),
        **_all("show info get offsets", "kohort topic describe TOPIC"),
        **_all("new add", "kohort topic create TOPIC"),
        **_all("consume read tail", _TAIL),
        **_all("produce write send", _SEND),
        **dict.fromkeys(("alter", "alter-config", "config", "set-config", "set"), f"is not served yet; {_CHANGE}"),
        **dict.fromkeys(
            ("add-partitions", "grow", "partitions"),
            'is not served yet; instead, from Python: kohort.Admin().create_partitions("TOPIC", TOTAL)',
        ),
    },
}

_TOPIC_OPTIONS: Final = ("-t", "--topic")
_SECURITY: Final = "TLS and SASL are not served yet: kohort listens on and connects to PLAINTEXT"
#: Verb -> option -> what is said about it.
_OPTIONS: Final[dict[str, dict[str, str]]] = {
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
        **dict.fromkeys(("-X", "-F", "--consumer.config", "--command-config"), _SECURITY),
    },
    "kohort send": {
        **dict.fromkeys(_TOPIC_OPTIONS, f"the topic stands by itself: {_SEND}"),
        **dict.fromkeys(("--property", "--reader-property"), "use --key-separator, --key or --header"),
        "-P": "send is what writes, without -P",
        **dict.fromkeys(("-X", "-F", "--producer.config", "--command-config"), _SECURITY),
    },
    "kohort group describe": {"--group": "the group stands by itself: kohort group describe GROUP"},
    "kohort topic create": {
        "--topic": "the topic stands by itself: kohort topic create TOPIC",
        **dict.fromkeys(
            ("-r", "--replicas", "--replication-factor"), "kohort's broker keeps one copy; leave the option out"
        ),
        **dict.fromkeys(("-c", "--topic-config"), "use --config NAME=VALUE"),
    },
}


def instead_of_words(words: Sequence[str]) -> str | None:
    """One sentence about a command line that begins with a word of another tool; `None` if it does not."""
    room = words[0] if words and words[0] in ("group", "topic") else "kohort"
    word = next(iter(words[1:] if room != "kohort" else words), "")
    said = _VERBS[room].get(word)
    return said and f"{word} {said}"


def instead_of_option(verb: str, option: str) -> str | None:
    """What to use in place of an option of another tool; `None` for one that we have never heard of."""
    return _OPTIONS.get(verb, {}).get(option)


def foreign_words() -> Iterator[tuple[str, ...]]:
    """Every beginning of a command line that `instead_of_words` answers."""
    for room, table in _VERBS.items():
        for word in table:
            yield (word,) if room == "kohort" else (room, word)
