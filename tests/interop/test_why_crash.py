"""`why` across a crash of the broker: nothing is concluded over what the journal was not told."""

from __future__ import annotations

from pathlib import Path

import kohort
from support.waiting import until


def test_members_that_left_just_before_the_crash_are_no_members(tmp_path: Path) -> None:
    """Two of three leave, are answered, kill -9 at once: "at rest with 3 members, because a, b, c joined"."""
    members: list[kohort.Consumer] = []
    with kohort.Broker(data_dir=str(tmp_path), process=True) as broker:
        address = broker.bootstrap_servers
        with kohort.Admin(bootstrap_servers=address) as admin:
            admin.create_topic("orders", 3)
        here = {"bootstrap_servers": address, "group_id": "g"}
        members += [kohort.Consumer("orders", client_id=name, **here) for name in ("a", "b", "c")]
        until(
            lambda: [len(member.assignment()) for member in members] == [1, 1, 1],
            what="a partition each",
            step=lambda: [member.poll(0.02) for member in members],
        )
        # The journal writes a tenth of a second later.
        until(lambda: "group_at_rest" in _written(address), what="the rows in the topic")
        for member in members[1:]:
            member.close()
        broker.kill()
        with (
            kohort.Broker(data_dir=str(tmp_path), process=True, port=int(address.rpartition(":")[2])) as again,
            kohort.Admin(bootstrap_servers=again.bootstrap_servers) as admin,
        ):
            found = admin.explain_group("g")
            there = {each.client_id for each in admin.describe_group("g").members}
            assert there == {"a"}
            assert "at rest with 3 members" not in found.summary
            assert found.gap is not None
            # Whose leave was not told: it is not said when it was, but that it is not known.
            assert set(found.gap.gone) <= {"b", "c"}
            assert "what came then is not known; " in found.summary
            owners = {(row.topic, row.partition): row.member for row in found.owners if row.ended_ms is None}
            assert set(owners.values()) <= {"a"}
            until(
                lambda: len(members[0].assignment()) == 3,
                what="all of it",
                step=lambda: members[0].poll(0.05),
            )
            found = admin.explain_group("g")
            assert found.last is not None and "a, b, c joined" not in found.last.sentence
            assert found.summary.endswith("the group is at rest with 1 member: nothing is waited for")
        members[0].close(0)


def _written(address: str) -> str:
    place = kohort.TopicPartition("__group_journal", 0)
    with kohort.Consumer(bootstrap_servers=address, auto_offset_reset="earliest") as reader:
        reader.assign([place])
        return " ".join((record.value or b"").decode() for record in reader.poll(0.5))
