"""What two brokers are asked to compare their answers: one scenario for each part of group coordination.

A scenario yields (what was asked, what was answered), in an order that every broker has to go through alike; each has
groups of its own. Apache Kafka's answers are recorded; run this file to record them anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from kohort.wire.embedded import encode_subscription
from support.peers.apache_broker import ApacheKafka
from support.peers.group_peer import AHEAD, BEFORE, NOW, GroupPeer

#: What was asked, and what was answered.
Steps = Iterator[tuple[str, object]]
#: Scenario -> step -> answer.
Answers = dict[str, dict[str, object]]

RECORDED: Final = Path(__file__).parents[2] / "data" / "groups" / "kafka-4.3.json"
#: Of both brokers: targets are computed at once, and groups are small.
CONFIG: Final[Mapping[str, object]] = {
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.assignment.interval.ms": 0,
    "group.consumer.max.size": 4,
    "group.max.size": 4,
    "offsets.topic.num.partitions": 4,
}


def form(peer: GroupPeer) -> Steps:
    """Heartbeats of the consumer protocol that are malformed."""
    group = "form"
    yield "no group id", peer.beat("", "a", 0)
    yield "no member id", peer.beat(group, "", 0)
    yield "empty instance id", peer.beat(group, "a", 0, instance_id="")
    yield "empty rack", peer.beat(group, "a", 0, rack_id="")
    yield "join without a rebalance timeout", peer.beat(group, "a", 0, rebalance_timeout_ms=-1)
    yield "join without owned partitions", peer.beat(group, "a", 0, owned=None)
    yield "join that owns something", peer.beat(group, "a", 0, owned={"t": [0]})
    yield "join without a subscription", peer.beat(group, "a", 0, subscribed_topic_names=None)
    yield "epoch -2 without an instance", peer.beat(group, "a", -2)
    yield "epoch -3", peer.beat(group, "a", -3)
    yield "unknown assignor", peer.beat(group, "a", 0, server_assignor="nope")
    yield "empty assignor", peer.beat(group, "a", 0, server_assignor="")
    yield "bad pattern", peer.beat(group, "a", 0, subscribed_topic_names=None, subscribed_topic_regex="(")
    yield "epoch 1 of nobody in no group", peer.beat(group, "a")
    yield "leave of nobody in no group", peer.beat(group, "a", -1)
    yield "nothing was made", peer.describe(group)
    yield "no name to describe", peer.describe("")


def members(peer: GroupPeer) -> Steps:
    """The life of dynamic members of the consumer protocol."""
    group = "members"
    yield "first joins", peer.beat(group, "a", 0)
    yield "heartbeat", peer.beat(group, "a")
    everything = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"], "owned": {"t": [0, 1]}}
    yield "full request", peer.beat(group, "a", NOW, **everything)
    yield "stranger", peer.beat(group, "x")
    yield "larger epoch", peer.beat(group, "a", AHEAD)
    yield "second joins", peer.beat(group, "b", 0)
    yield "first is told", peer.beat(group, "a")
    yield "first says nothing of it", peer.beat(group, "a")
    yield "first still owns it", peer.beat(group, "a", NOW, owned={"t": [0, 1]})
    yield "described", peer.describe(group)
    yield "first gives up", peer.beat(group, "a", NOW, owned={"t": [0]})
    yield "second gets it", peer.beat(group, "b")
    yield "previous epoch with what it has", peer.beat(group, "a", BEFORE, owned={"t": [0]})
    yield "previous epoch without a list", peer.beat(group, "a", BEFORE)
    yield "previous epoch with more", peer.beat(group, "a", BEFORE, owned={"t": [0, 1]})
    yield "described at rest", peer.describe(group)
    yield "another rack moves nothing", peer.beat(group, "a", NOW, rack_id="r")
    yield "another subscription", peer.beat(group, "b", NOW, subscribed_topic_names=["t", "u"])
    yield "its epoch", peer.beat(group, "b")
    yield "the other's epoch", peer.beat(group, "a")
    yield "joins again under its id", peer.beat(group, "a", 0)
    yield "assignor of its choice", peer.beat(group, "a", NOW, server_assignor="range")
    yield "subscribes to nothing", peer.beat(group, "b", NOW, subscribed_topic_names=[])
    yield "gave up everything", peer.beat(group, "b", NOW, owned={})
    yield "leave of a stranger", peer.beat(group, "x", -1)
    yield "leaves", peer.beat(group, "b", -1)
    yield "leaves again", peer.beat(group, "b", -1)
    yield "the other takes all", peer.beat(group, "a", NOW, owned={"t": [0]})
    yield "last leaves", peer.beat(group, "a", -1)
    yield "empty", peer.describe(group)
    yield "listed", peer.listed(group)
    yield "epochs go on", peer.beat(group, "c", 0)
    yield "of another group's kind", peer.describe_classic(group)
    yield "of another group's kind, before version 6", peer.describe_classic(group, version=5)
    yield "not empty", peer.delete(group, "members-none")


def statics(peer: GroupPeer) -> Steps:
    """Static members of the consumer protocol."""
    group = "statics"
    yield "joins", peer.beat(group, "a", 0, instance_id="one")
    yield "second joins", peer.beat(group, "b", 0, instance_id="two")
    yield "first is told", peer.beat(group, "a", NOW, instance_id="one")
    yield "first gives up", peer.beat(group, "a", NOW, instance_id="one", owned={"t": [0]})
    yield "second gets it", peer.beat(group, "b", NOW, instance_id="two")
    yield "name in use", peer.beat(group, "c", 0, instance_id="one")
    yield "another's name", peer.beat(group, "b", NOW, instance_id="one")
    yield "nobody's name", peer.beat(group, "b", NOW, instance_id="three")
    yield "leave under another's name", peer.beat(group, "b", -2, instance_id="one")
    yield "leave under nobody's name", peer.beat(group, "b", -2, instance_id="three")
    yield "leaves for a while", peer.beat(group, "a", -2, instance_id="one")
    yield "described", peer.describe(group)
    yield "nobody is told", peer.beat(group, "b", NOW, instance_id="two")
    yield "comes back", peer.beat(group, "c", 0, instance_id="one")
    yield "described after that", peer.describe(group)
    yield "former id", peer.beat(group, "a", NOW, instance_id="one")
    yield "former id without the name", peer.beat(group, "a")
    yield "former id commits", peer.commit(group, "a", NOW, instance_id="one")
    yield "commits", peer.commit(group, "c", NOW, instance_id="one")
    yield "leaves for good", peer.beat(group, "c", -1, instance_id="one")
    yield "removed by name", peer.leave(group, ("", "two"), ("", "three"), ("z", None))
    yield "empty", peer.describe(group)


def patterns(peer: GroupPeer) -> Steps:
    """Names, an empty pattern, and both."""
    group = "patterns"
    yield "empty pattern and names", peer.beat(group, "a", 0, subscribed_topic_regex="")
    yield "described", peer.describe(group)
    yield "empty pattern alone", peer.beat(group, "b", 0, subscribed_topic_names=None, subscribed_topic_regex="")
    yield "bad pattern later", peer.beat(group, "a", NOW, subscribed_topic_regex="[")


def classic(peer: GroupPeer) -> Steps:
    """The life of dynamic members of the classic protocol."""
    group = "classic"
    yield "no group id", peer.join("", "a")
    yield "session too short", peer.join(group, "a", session_timeout_ms=1)
    yield "session too long", peer.join(group, "a", session_timeout_ms=3_600_000)
    yield "id that nobody knows", peer.join(group, "x", member_id="x")
    peer.ids.clear()
    yield "no protocols", peer.join(group, "a", protocols={}, version=3)
    yield "no protocol type", peer.join(group, "a", protocol_type="", version=3)
    yield "id is required", peer.join(group, "a")
    yield "group that somebody is expected in", peer.describe_classic(group)
    yield "founds the group", peer.join(group, "a")
    yield "in between", peer.describe_classic(group)
    yield "heartbeat before the sync", peer.classic_beat(group, "a")
    yield "sync of a stranger", peer.sync(group, "x")
    yield "sync of another generation", peer.sync(group, "a", AHEAD)
    yield "sync of another protocol", peer.sync(group, "a", NOW, protocol_name="sticky")
    yield "sync of another type", peer.sync(group, "a", NOW, protocol_type="connect")
    yield "sync without its protocol", peer.sync(group, "a", NOW, protocol_name=None)
    yield "leader syncs", peer.sync(group, "a", NOW, shares={"a": [0, 1], "z": [1]})
    yield "syncs again", peer.sync(group, "a")
    yield "stable", peer.describe_classic(group)
    yield "heartbeat", peer.classic_beat(group, "a")
    yield "heartbeat of another generation", peer.classic_beat(group, "a", AHEAD)
    yield "heartbeat of a stranger", peer.classic_beat(group, "x")
    yield "no common protocol", peer.join(group, "b", protocols={"sticky": encode_subscription(["t"])}, version=3)
    yield "another type", peer.join(group, "b", protocol_type="connect", version=3)
    yield "second is given an id", peer.join(group, "b")
    peer.join(group, "b", is_parked=True)
    yield "first is told", peer.classic_beat(group, "a")
    yield "preparing", peer.describe_classic(group)
    yield "sync while others join", peer.sync(group, "a")
    yield "commit while others join", peer.commit(group, "a", NOW)
    yield "first rejoins", peer.join(group, "a")
    yield "second is answered", peer.joined(group, "b")
    yield "follower joins again", peer.join(group, "b")
    yield "commit before the sync", peer.commit(group, "a", NOW)
    yield "commit of the generation before", peer.commit(group, "a", BEFORE)
    yield "commit of a stranger", peer.commit(group, "x", NOW)
    yield "commit of nobody", peer.commit(group, "", -1)
    peer.sync(group, "b", NOW, is_parked=True)
    yield "leader shares out", peer.sync(group, "a", NOW, shares={"a": [0], "b": [1]})
    yield "follower's part", peer.synced("b")
    yield "follower joins once more", peer.join(group, "b")
    yield "fetch of a stranger", peer.fetch(group, "x", 9)
    yield "follower leaves", peer.leave(group, ("b", None), ("x", None))
    yield "leader is told", peer.classic_beat(group, "a")
    yield "leader rejoins alone", peer.join(group, "a")
    yield "deleting what has members", peer.delete(group)
    yield "offsets in use", peer.delete_offsets(group, ("t", 0), ("u", 0), ("none", 0))
    yield "described as the other kind", peer.describe(group)
    yield "leaves, in version 2", peer.leave(group, ("a", None), version=2)
    yield "leaves again, in version 2", peer.leave(group, ("a", None), version=2)
    yield "empty", peer.describe_classic(group)
    yield "heartbeat in an empty group", peer.classic_beat(group, "a")
    yield "sync in an empty group", peer.sync(group, "a")
    yield "join under an old id", peer.join(group, "a")
    yield "listed", peer.listed(group)
    yield "deleted", peer.delete(group)
    yield "gone", peer.describe_classic(group)
    yield "gone, before version 6", peer.describe_classic(group, version=5)
    yield "leave of a group that is gone", peer.leave(group, ("a", None))
    yield "heartbeat in a group that is gone", peer.classic_beat(group, "a")
    yield "sync in a group that is gone", peer.sync(group, "a")


def classic_statics(peer: GroupPeer) -> Steps:
    """Static members of the classic protocol."""
    group = "named"
    yield "empty instance id", peer.join("named-none", "z", instance_id="")
    yield "joins", peer.join(group, "a", instance_id="one")
    yield "syncs", peer.sync(group, "a", NOW, shares={"a": [0, 1]}, instance_id="one")
    yield "another's name", peer.classic_beat(group, "x", NOW, "one")
    yield "nobody's name", peer.classic_beat(group, "a", NOW, "two")
    peer.ids["old"] = peer.ids.pop("a")
    yield "comes back", peer.join(group, "a", instance_id="one")
    yield "syncs after that", peer.sync(group, "a", NOW, instance_id="one")
    yield "former id's heartbeat", peer.classic_beat(group, "old", NOW, "one")
    yield "former id's heartbeat without the name", peer.classic_beat(group, "old")
    yield "former id's sync", peer.sync(group, "old", NOW, instance_id="one")
    yield "former id's commit", peer.commit(group, "old", NOW, instance_id="one")
    yield "former id's join", peer.join(group, "x", instance_id="one", member_id=peer.ids["old"])
    yield "former id leaves", peer.leave(group, ("old", "one"))
    peer.ids["older"] = peer.ids.pop("a")
    yield "comes back in version 8", peer.join(group, "a", instance_id="one", version=8)
    yield "described", peer.describe_classic(group)
    yield "removed by name", peer.leave(group, ("", "one"), ("", "two"))
    yield "empty", peer.describe_classic(group)


def offsets(peer: GroupPeer) -> Steps:
    """Commits and fetches of groups of each kind, and their end."""
    group = "offsets"
    yield "fetch from no group", peer.fetch("offsets-none")
    yield "fetch of a member from no group", peer.fetch("offsets-none", "a", 1)
    yield "fetch of everything from no group", peer.fetch("offsets-none", places=None)
    yield "commit of a member to no group", peer.commit("offsets-none", "a", 1)
    yield "commit of a generation to no group", peer.commit("offsets-none", "a", 1, version=8)
    yield "simple commit", peer.commit("offsets-simple", "", -1)
    yield "metadata too long", peer.commit("offsets-simple", "", -1, metadata="x" * 4097)
    yield "unknown partition", peer.commit("offsets-simple", "", -1, ("t", 0), ("t", 9), ("none", 0))
    yield "unknown topic id", peer.commit("offsets-simple", "", -1, ("t", 0), ("none", 0), version=10)
    yield "fetched by id", peer.fetch("offsets-simple", places=[("t", 0), ("none", 0)], version=10)
    yield "fetched by name", peer.fetch("offsets-simple", places=[("t", 0), ("t", 1), ("none", 0)])
    yield "fetched as a whole", peer.fetch("offsets-simple", places=None)
    yield "fetched by a stranger", peer.fetch("offsets-simple", "x", 3)
    yield "simple group listed", peer.listed("offsets-simple")
    yield "simple group described", peer.describe_classic("offsets-simple")
    yield "simple group described as the other kind", peer.describe("offsets-simple")
    yield "offsets deleted", peer.delete_offsets("offsets-simple", ("t", 0), ("t", 9), ("none", 0))
    yield "offsets of no group deleted", peer.delete_offsets("offsets-none", ("t", 0))
    peer.beat(group, "a", 0)
    yield "member commits", peer.commit(group, "a", NOW)
    yield "in an old version", peer.commit(group, "a", NOW, version=8)
    yield "newer epoch", peer.commit(group, "a", AHEAD)
    yield "epoch -1 of a member", peer.commit(group, "a", -1)
    yield "nobody", peer.commit(group, "", -1)
    yield "stranger", peer.commit(group, "x", NOW)
    peer.beat(group, "b", 0)
    peer.beat(group, "a")
    yield "while it gives up", peer.commit(group, "a", NOW, ("t", 0), ("t", 1))
    peer.beat(group, "a", NOW, owned={"t": [0]})
    yield "older epoch, kept partition", peer.commit(group, "a", BEFORE, ("t", 0))
    yield "older epoch, given up partition", peer.commit(group, "a", BEFORE, ("t", 1))
    yield "fetch with the epoch", peer.fetch(group, "a", NOW)
    yield "fetch with a newer epoch", peer.fetch(group, "a", AHEAD)
    yield "fetch of a stranger in a group", peer.fetch(group, "x", NOW)
    yield "fetch without a member", peer.fetch(group)
    yield "offsets in use", peer.delete_offsets(group, ("t", 0), ("u", 0))
    yield "group in use", peer.delete(group)
    peer.beat(group, "a", -1)
    peer.beat(group, "b", -1)
    yield "nobody commits to an empty group", peer.commit(group, "", -1, ("u", 0))
    yield "stranger commits to an empty group", peer.commit(group, "x", NOW)
    yield "offsets of an empty group deleted", peer.delete_offsets(group, ("u", 0))
    yield "deleted", peer.delete(group, group + "-none")
    yield "nothing is left", peer.fetch(group, places=None)
    yield "no longer described", peer.describe(group)


def full(peer: GroupPeer) -> Steps:
    """Groups that have as many members as they may: four."""
    group = "full-consumer"
    for member in ("a", "b", "c"):
        peer.beat(group, member, 0)
    yield "fourth", peer.beat(group, "d", 0, instance_id="four")
    yield "fifth", peer.beat(group, "e", 0)
    yield "fifth by name", peer.beat(group, "e", 0, instance_id="five")
    yield "fifth by a name in use", peer.beat(group, "e", 0, instance_id="four")
    yield "fifth of the other protocol", peer.join(group, "e", version=3)
    peer.beat(group, "d", -2, instance_id="four")
    yield "who comes back", peer.beat(group, "e", 0, instance_id="four")
    yield "who joins again", peer.beat(group, "a", 0)
    group = "full-classic"
    peer.join(group, "k")
    peer.join(group, "k")
    for member in ("l", "m", "n"):
        peer.join(group, member)
        peer.join(group, member, is_parked=True)
    yield "leader rejoins", peer.join(group, "k")
    for member in ("l", "m", "n"):
        peer.joined(group, member)
    yield "leader syncs", peer.sync(group, "k", shares={"k": [0], "l": [1]})
    yield "another one", peer.join(group, "o")
    yield "another one, before version 4", peer.join(group, "o", version=3)
    yield "member that joins again", peer.join(group, "l")


def downward(peer: GroupPeer) -> Steps:
    """Classic members join a group of the consumer protocol, and are what is left of it."""
    group = "downward"
    peer.beat(group, "a", 0)
    yield "id is required", peer.join(group, "b")
    yield "classic member joins", peer.join(group, "b")
    yield "it syncs", peer.sync(group, "b")
    yield "owner is told", peer.beat(group, "a")
    yield "nothing to rejoin for yet", peer.classic_beat(group, "b")
    yield "owner gives up", peer.beat(group, "a", NOW, owned={"t": [0]})
    yield "now there is", peer.classic_beat(group, "b")
    yield "it rejoins", peer.join(group, "b")
    yield "it syncs again", peer.sync(group, "b")
    yield "it rests", peer.classic_beat(group, "b")
    yield "it commits", peer.commit(group, "b", NOW, ("t", 1), version=8)
    yield "it commits for an older generation", peer.commit(group, "b", 0, ("t", 1), version=8)
    yield "static member of the old protocol", peer.join(group, "c", instance_id="three")
    peer.ids["former"] = peer.ids.pop("c")
    yield "it comes back", peer.join(group, "c", instance_id="three")
    yield "its former id", peer.classic_beat(group, "former", NOW, "three")
    yield "its former id syncs", peer.sync(group, "former", NOW, instance_id="three")
    yield "it is replaced by the new protocol", peer.beat(group, "new", 0, instance_id="three")
    yield "its id is gone", peer.classic_beat(group, "c", NOW, "three")
    yield "removed", peer.leave(group, ("", "three"), ("x", None))
    yield "classic member leaves", peer.leave(group, ("b", None))
    yield "described", peer.describe(group)
    peer.beat(group, "a", -1)
    peer.join(group, "d", version=3)
    yield "of another kind now", peer.describe(group)
    yield "classic now", peer.describe_classic(group)


def lists(peer: GroupPeer) -> Steps:
    """Filters of ListGroups."""
    peer.beat("lists-consumer", "a", 0)
    peer.join("lists-classic", "b")
    peer.join("lists-classic", "b")
    peer.commit("lists-simple", "", -1)
    yield "all", peer.listed("lists")
    yield "by state", peer.listed("lists", states=["Stable"])
    yield "by states in other letters", peer.listed("lists", states=["stable", "EMPTY"])
    yield "by type", peer.listed("lists", types=["classic"])
    yield "by type in other letters", peer.listed("lists", types=["Consumer"])
    yield "by both", peer.listed("lists", states=["Empty"], types=["classic"])
    yield "by a state that is none", peer.listed("lists", states=["Sleepy"])
    yield "by a type that is none", peer.listed("lists", types=["sleepy"])


def odd(peer: GroupPeer) -> Steps:
    """Numbers and names that no client sends."""
    lowest, highest = -(2**31), 2**31 - 1
    peer.beat("odd", "a", 0)
    yield "lowest epoch", peer.beat("odd", "a", lowest)
    yield "highest epoch", peer.beat("odd", "a", highest)
    yield "commit at the lowest epoch", peer.commit("odd", "a", lowest)
    yield "commit at epoch -2", peer.commit("odd", "a", -2)
    yield "commit at the highest epoch", peer.commit("odd", "a", highest)
    yield "commit of a negative partition", peer.commit("odd", "a", NOW, ("t", -1))
    yield "commit of the highest partition", peer.commit("odd", "a", NOW, ("t", highest))
    yield "commit for a topic without a name", peer.commit("odd", "a", NOW, ("", 0))
    yield "commit of everything twice", peer.commit("odd", "a", NOW, ("t", 0), ("t", 0))
    yield "fetch at the lowest epoch", peer.fetch("odd", "a", lowest)
    yield "fetch of an empty member id", peer.fetch("odd", "", 1)
    yield "fetch of a negative partition", peer.fetch("odd", places=[("t", -1)])
    yield "fetch from a group without a name", peer.fetch("")
    yield "topic that is not there", peer.beat("odd", "b", 0, subscribed_topic_names=["none"])
    yield "topic that is named twice", peer.beat("odd", "c", 0, subscribed_topic_names=["u", "u"])
    yield "owned partitions that are not there", peer.beat("odd", "a", NOW, owned={"t": [0, 1, 99]})
    yield "rebalance timeout of nothing", peer.beat("odd", "d", 0, rebalance_timeout_ms=0)
    yield "delete of a group without a name", peer.delete("")
    yield "delete of offsets of a group without a name", peer.delete_offsets("", ("t", 0))
    yield "description of a classic group without a name", peer.describe_classic("")
    group = "odd-classic"
    yield "negative session", peer.join(group, "k", session_timeout_ms=-1)
    yield "no name of a protocol", peer.join(group, "k", protocols={"": encode_subscription(["t"])}, version=3)
    yield "its sync", peer.sync(group, "k", protocol_name="", shares={"k": [0]})
    yield "heartbeat at generation -1", peer.classic_beat(group, "k", -1)
    yield "heartbeat at the lowest generation", peer.classic_beat(group, "k", lowest)
    yield "sync at generation -1", peer.sync(group, "k", -1, protocol_name="")
    yield "commit at generation -1", peer.commit(group, "k", -1)
    yield "commit at the highest generation", peer.commit(group, "k", highest)
    yield "heartbeat without a group", peer.classic_beat("", "k", 1)
    yield "sync without a group", peer.sync("", "k", 1)
    yield "leave without a group", peer.leave("", ("k", None))
    yield "heartbeat without an id", peer.classic_beat(group, "", 1)
    yield "nobody leaves", peer.leave(group)
    yield "somebody without an id leaves", peer.leave(group, ("", None))
    yield "the same leaves twice", peer.leave(group, ("k", None), ("k", None))


def upward(peer: GroupPeer) -> Steps:
    """A classic group is moved by a member of the consumer protocol, and becomes classic again."""
    group = "upward"
    peer.join(group, "a")
    peer.join(group, "a")
    peer.sync(group, "a", NOW, shares={"a": [0, 1]})
    yield "consumer joins", peer.beat(group, "new", 0)
    yield "classic member's heartbeat", peer.classic_beat(group, "a")
    yield "classic member rejoins", peer.join(group, "a", topics=["t"])
    yield "classic member syncs", peer.sync(group, "a")
    yield "consumer gets its part", peer.beat(group, "new")
    yield "commit of the classic member", peer.commit(group, "a", NOW, ("t", 0), version=8)
    yield "both kinds", peer.describe(group)
    yield "not a classic group", peer.describe_classic(group)
    yield "classic member in another's name", peer.classic_beat(group, "new")
    yield "heartbeat of another generation", peer.classic_beat(group, "a", AHEAD)
    yield "sync of a stranger", peer.sync(group, "x")
    yield "join without a common protocol", peer.join(group, "b", protocols={"zzz": b""}, version=3)
    yield "join of another type", peer.join(group, "b", protocol_type="connect", version=3)
    yield "join that is no subscription", peer.join(group, "b", protocols={"range": b"\x00"}, version=3)
    yield "consumer leaves", peer.beat(group, "new", -1)
    yield "classic again", peer.describe(group)
    yield "classic member is told", peer.classic_beat(group, "a")
    yield "listed", peer.listed(group)
    group = "upward-other"
    peer.join(group, "c", protocol_type="connect", protocols={"p": b"x"})
    peer.join(group, "c", protocol_type="connect", protocols={"p": b"x"})
    yield "group of another type", peer.beat(group, "new", 0)
    group = "upward-none"
    peer.join(group, "d")
    peer.join(group, "d")
    yield "leave of a consumer in a classic group", peer.beat(group, "new", -1)
    yield "heartbeat of a consumer in a classic group", peer.beat(group, "new")


SCENARIOS: dict[str, Callable[[GroupPeer], Steps]] = {
    each.__name__: each
    for each in (
        form,
        members,
        statics,
        patterns,
        classic,
        classic_statics,
        offsets,
        full,
        downward,
        lists,
        odd,
        upward,
    )
}


def answers_of(address: str) -> Answers:
    """What a new broker answers, in the form in which answers are recorded."""
    found: Answers = {}
    with GroupPeer(address, {"t": 2, "u": 1}) as peer:
        for name, scenario in SCENARIOS.items():
            peer.ids.clear()
            steps = list(scenario(peer))
            found[name] = dict(steps)
            assert len(found[name]) == len(steps), f"two steps of {name} have one name"
    again: Answers = json.loads(json.dumps(found, sort_keys=True))
    return again


def answers_of_kafka() -> Answers:
    """What Apache Kafka answers now."""
    with ApacheKafka({**CONFIG, "group.consumer.min.assignment.interval.ms": 0}) as kafka:
        return answers_of(kafka.bootstrap_servers)


def recorded_answers() -> Answers:
    """What Apache Kafka answered when it was asked last."""
    found: Answers = json.loads(RECORDED.read_text())
    return found


if __name__ == "__main__":
    RECORDED.parent.mkdir(exist_ok=True)
    RECORDED.write_text(json.dumps(answers_of_kafka(), indent=1, sort_keys=True) + "\n")
