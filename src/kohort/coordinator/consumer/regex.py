"""Subscriptions by pattern: resolution of an RE2 expression to topics, also when topics change.

A pattern has to match a whole name. It is resolved in the heartbeat that sets it, and again with each change of topics,
then only against the changed ones; the result is a record, so that a restart needs no resolution. The broker's own
topics (`__consumer_offsets`, `__transaction_state`) match only a pattern that has `__` in it: a group that consumed its
own commits, as `.*` makes it do on Apache Kafka, would never come to rest.
Where topics are hidden from some clients, a pattern matches those that its member may see. As in Apache Kafka, members
with one pattern share what it matches: it is what the member that sent the pattern last may see.

Laws: matching takes time linear in the name, and memory within a bound, whatever the pattern: the engine is RE2 or
there is none. An unsupported pattern is refused before anything changes; a resolved one stays.
Source: KIP-848 (subscriptions by regular expression). Apache Kafka resolves in the background, at most every ten
seconds and only after a heartbeat (KAFKA-17593), and looks for new topics by time (KAFKA-18961).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from types import ModuleType
from typing import Final

from kohort.base.values import value
from kohort.coordinator.commands import PatternSent, Sight
from kohort.coordinator.consumer.subscription_metadata import names_in
from kohort.coordinator.model import NO_SIGHTS, ConsumerGroup, ConsumerMember, GroupsState
from kohort.coordinator.records import types as facts
from kohort.coordinator.topics import TopicImage
from kohort.errors import ErrorCode, Refused
from kohort.ids import INTERNAL_TOPICS

#: Longest pattern, in bytes of UTF-8: clients unite all their patterns in one. The group log allows twice as much.
MAX_REGEX: Final = 16_384
#: Most topics of a pattern in the heartbeat that sets it.
MAX_RESOLVED_TOPICS: Final = 100_000
#: Most memory of one compiled pattern, bytes.
MAX_PATTERN_BYTES: Final = 1 << 20
#: Number of compiled patterns in the cache; others are compiled again when topics change.
KEPT_PATTERNS: Final = 128
#: Most characters of a pattern in a message.
_QUOTED: Final = 200


class TopicPattern:
    """One compiled pattern."""

    __slots__ = ("_fullmatch", "_has_internal", "_prefix")

    def __init__(self, regex: str) -> None:
        re2 = _engine()
        options = re2.Options()
        options.max_mem = MAX_PATTERN_BYTES
        # RE2's error goes to the client that sent the pattern, not to the broker's standard error.
        options.log_errors = False
        options.never_capture = True
        try:
            compiled = re2.compile(regex, options)
        except (re2.error, UnicodeEncodeError) as why:
            raise _invalid(regex, f"does not compile: {_reason(why)}") from None
        self._fullmatch = compiled.fullmatch
        self._has_internal = "__" in regex
        try:
            lowest, highest = compiled.possiblematchrange(32)
            self._prefix = _common_prefix(lowest, highest)
        except re2.error:
            # There is no such range, as for a pattern that begins with `.*`.
            self._prefix = ""

    def matching(self, names: Iterable[str]) -> list[str]:
        """Return the matching names, in their order."""
        fullmatch, prefix = self._fullmatch, self._prefix
        found = [name for name in names if name.startswith(prefix) and fullmatch(name) is not None]
        return found if self._has_internal else [name for name in found if name not in INTERNAL_TOPICS]


@lru_cache(maxsize=KEPT_PATTERNS)
def compile_pattern(regex: str) -> TopicPattern:
    """Compile a pattern.

    Raises:
        Refused: INVALID_REGULAR_EXPRESSION if it is too long or too large, is not RE2 syntax, or RE2 is not installed.
    """
    size = len(regex) if len(regex) > MAX_REGEX else len(regex.encode("utf-8", "replace"))
    if size > MAX_REGEX:
        raise Refused(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex has {size} bytes or more; at most {MAX_REGEX} are served",
        )
    return TopicPattern(regex)


def resolve_regex(
    group: ConsumerGroup, regex: str | None, image: TopicImage, sight: Sight | None = None, *, now_ms: int
) -> facts.RegularExpressionResolved | None:
    """Return the topics of a pattern in a group, known or resolved now; `None` without a pattern.

    Raises:
        Refused: INVALID_REGULAR_EXPRESSION, also if it matches too many topics.
    """
    if regex is None:
        return None
    known = group.regexes.get(regex)
    if known is not None:
        return known
    found = sorted(_visible(compile_pattern(regex).matching(image.by_name), sight))
    if len(found) > MAX_RESOLVED_TOPICS:
        raise _invalid(regex, f"matches {len(found)} topics; at most {MAX_RESOLVED_TOPICS} are served")
    return _resolved(group.group_id, regex, found, image, now_ms=now_ms)


def resolve_again(
    group: ConsumerGroup, image: TopicImage, changed: Collection[str], *, hides_unseen: bool = False, now_ms: int
) -> list[facts.RegularExpressionResolved]:
    """Return records of the group's patterns that match other topics in `image` than before.

    `changed`: every topic name that was created, deleted or re-created since the patterns were resolved.
    """
    found: list[facts.RegularExpressionResolved] = []
    present = [name for name in changed if name in image.by_name] if group.regexes else []
    for regex, before in group.regexes.items():
        sight, edition = group.sights.get(regex, (None, 0))
        candidates: Iterable[str] = present
        if sight is not None and sight.edition != edition:
            # Other rights may show any topic, old ones as well.
            candidates = image.by_name
        elif sight is None and hides_unseen:
            # After a restart no member has sent the pattern yet: what it may see is not guessed.
            candidates = ()
        topics = set(_visible((name for name in before.topics if name in image.by_name), sight))
        # Kafka's engine accepted the pattern and RE2 does not, or RE2 is not installed any more: the known topics stay.
        with suppress(Refused):
            topics.update(_visible(compile_pattern(regex).matching(candidates), sight))
        if len(topics) != len(before.topics) or not topics.issuperset(before.topics):
            found.append(_resolved(group.group_id, regex, sorted(topics), image, now_ms=now_ms))
    return found


def find_outdated(group: ConsumerGroup) -> list[PatternSeen]:
    """Return records of the patterns whose member's rights have changed since they were resolved."""
    return [
        PatternSeen(group_id=group.group_id, regex=regex, sight=sight, edition=sight.edition)
        for regex, (sight, edition) in group.sights.items()
        if sight.edition != edition
    ]


def resolve_sent(
    group: ConsumerGroup, command: PatternSent, image: TopicImage, *, now_ms: int
) -> tuple[PatternSeen, facts.RegularExpressionResolved | None] | None:
    """Return the sender's sight of a known pattern, and its topics if they differ; `None`: no change."""
    before, sight, edition = group.regexes.get(command.regex), command.sight, command.sight.edition
    if before is None or group.sights.get(command.regex) == (sight, edition):
        return None
    note = PatternSeen(group_id=group.group_id, regex=command.regex, sight=sight, edition=edition)
    topics = set(_visible((name for name in before.topics if name in image.by_name), sight))
    with suppress(Refused):
        topics = set(_visible(compile_pattern(command.regex).matching(image.by_name), sight))
    if topics == set(before.topics):
        return note, None
    return note, _resolved(group.group_id, command.regex, sorted(topics), image, now_ms=now_ms)


@value
class PatternSeen(facts.VolatileRecord):
    """A pattern was resolved to topics that are visible by `sight`, as of its `edition`."""

    regex: str
    sight: Sight
    edition: int


def apply_seen(groups: GroupsState, record: PatternSeen) -> None:
    """Set the sight (visible topics) of the member that last sent a pattern."""
    group = groups.consumer.get(record.group_id)
    if group is not None and record.regex in group.regexes:
        if group.sights is NO_SIGHTS:
            group.sights = {}
        group.sights[record.regex] = record.sight, record.edition


def _visible(names: Iterable[str], sight: Sight | None) -> Iterable[str]:
    return names if sight is None else [name for name in names if sight.sees(name)]


def names_after(group: ConsumerGroup, resolved: Iterable[facts.RegularExpressionResolved]) -> set[str]:
    """Return every subscribed topic of the group once its patterns are resolved as in `resolved`."""
    regexes = group.regexes | {each.regex: each for each in resolved}
    named = {member.subscribed_topic_names for member in group.members.values()}
    return names_in(named) | names_in(each.topics for each in regexes.values())


def build_regex_records(
    group: ConsumerGroup,
    member: ConsumerMember,
    subscribed: facts.ConsumerMemberSubscribed,
    resolved: facts.RegularExpressionResolved | None,
) -> list[facts.RegularExpressionResolved | facts.RegularExpressionForgotten]:
    """Build the pattern records of a changed subscription: its new pattern, and the end of an unused one."""
    records: list[facts.RegularExpressionResolved | facts.RegularExpressionForgotten] = []
    if resolved is not None and resolved.regex not in group.regexes:
        records.append(resolved)
    before = member.subscribed_topic_regex
    if before is not None and before != subscribed.subscribed_topic_regex:
        records.extend(_forgotten(group, {before: 1}))
    return records


def build_forgotten_regexes(group: ConsumerGroup, gone: Iterable[str]) -> list[facts.RegularExpressionForgotten]:
    """Build tombstones of the patterns without subscribers once the members `gone` are removed."""
    counts: dict[str, int] = {}
    for member_id in gone:
        regex = group.members[member_id].subscribed_topic_regex
        if regex is not None:
            counts[regex] = counts.get(regex, 0) + 1
    return _forgotten(group, counts)


def _forgotten(group: ConsumerGroup, less: dict[str, int]) -> list[facts.RegularExpressionForgotten]:
    return [
        facts.RegularExpressionForgotten(group_id=group.group_id, regex=regex)
        for regex, count in less.items()
        if regex in group.regexes and group.regex_subscribers.get(regex, 0) <= count
    ]


def _resolved(
    group_id: str, regex: str, topics: Sequence[str], image: TopicImage, *, now_ms: int
) -> facts.RegularExpressionResolved:
    return facts.RegularExpressionResolved(
        group_id=group_id, regex=regex, topics=tuple(topics), image_version=image.version, timestamp_ms=now_ms
    )


def _common_prefix(lowest: bytes, highest: bytes) -> str:
    """Return the ASCII prefix that all names between `lowest` and `highest` have in common."""
    count = 0
    while count < min(len(lowest), len(highest)) and lowest[count] == highest[count] < 128:
        count += 1
    return lowest[:count].decode("ascii")


def _engine() -> ModuleType:
    """Import RE2, which happens only when a member subscribes by pattern."""
    try:
        import re2
    except ImportError:
        raise Refused(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            "subscriptions by regular expression need RE2 on the broker: pip install kohort[regex], or name the topics",
        ) from None
    engine: ModuleType = re2
    return engine


def _invalid(regex: str, why: str) -> Refused:
    shown = regex if len(regex) <= _QUOTED else f"{regex[:_QUOTED]}..."
    return Refused(ErrorCode.INVALID_REGULAR_EXPRESSION, f"SubscribedTopicRegex `{shown}` {why}")


def _reason(why: Exception) -> str:
    if isinstance(why, UnicodeEncodeError):
        return "it is no text in UTF-8"
    said = why.args[0] if why.args else why
    return said.decode("utf-8", "replace")[:_QUOTED] if isinstance(said, bytes) else str(said)[:_QUOTED]
