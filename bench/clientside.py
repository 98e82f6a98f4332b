"""Targets that a member computes beside those of the broker's own assignor: all join, one joins, one leaves.

Both are kohort's broker and the same `uniform`; what differs is who runs it. Members are raw connections in one
process; the one that is asked computes there and has a connection of its own for it, as kohort's consumer has.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from functools import partial
from typing import Any

from groupload import Connection, GroupLoad, Member, many_files
from kohort.assign.assignors import built_in
from kohort.client.consumer.membership.computing import read_group
from kohort.wire.codec import decode
from kohort.wire.messages.consumer_group_heartbeat import ClientAssignor
from kohort.wire.messages.consumer_group_install_assignment import (
    ConsumerGroupInstallAssignmentRequest,
    ConsumerGroupInstallAssignmentResponse,
)
from kohort.wire.messages.consumer_group_prepare_assignment import (
    ConsumerGroupPrepareAssignmentRequest,
    ConsumerGroupPrepareAssignmentResponse,
)
from kohort.wire.private import SOFTWARE_NAME, PrivateApiKey
from load import RawConnection, frame
from report import Row, Table, compare, warmed
from servers import KohortServer, client_of
from topics import create_topic

MEMBERS, PARTITIONS = 1_000, 4_000
TOPIC = "clientside"
REACH = "<= 1.5x + 0.1 s"
WHAT = ("all join, until each has its share", "one joins", "one leaves")
Figures = dict[str, list[float]]


class Computed(GroupLoad):
    """Members of which one computes what the broker's `uniform` would."""

    side: Connection

    async def open_side(self) -> None:
        """The connection by which whoever is asked fetches what to compute."""
        self.assignors = [
            ClientAssignor(
                name="mine", minimum_version=0, maximum_version=0, reason=0, metadata_version=0, metadata_bytes=b""
            )
        ]
        _, self.side = await self.loop.create_connection(partial(Connection, SOFTWARE_NAME), "127.0.0.1", self.port)

    def compute(self, member: Member, epoch: int) -> None:
        """See `GroupLoad.compute`."""
        request = ConsumerGroupPrepareAssignmentRequest(
            group_id=self.group, member_id=member.member_id, member_epoch=epoch
        )
        data = frame(PrivateApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT, 0, request)
        self.side.send(data, partial(self._assign, member, epoch))

    def _assign(self, member: Member, epoch: int, body: memoryview) -> None:
        answer = decode(ConsumerGroupPrepareAssignmentResponse, 0, body, 5)[0]
        if answer.error_code:
            # It has another epoch by now, and is asked again.
            return
        uniform = built_in("uniform")
        assert uniform is not None
        request = ConsumerGroupInstallAssignmentRequest(
            group_id=self.group,
            member_id=member.member_id,
            member_epoch=epoch,
            group_epoch=answer.group_epoch,
            error=0,
            owners=list(uniform.assign(read_group(answer))),
            members=[],
        )
        self.side.send(frame(PrivateApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT, 0, request), self._installed)
        member.heartbeat_soon()

    @staticmethod
    def _installed(body: memoryview) -> None:
        answer = decode(ConsumerGroupInstallAssignmentResponse, 0, body, 5)[0]
        assert not answer.error_code or answer.error_message, answer


async def measure_run(server: KohortServer, found: Figures, *, is_computed: bool) -> None:
    """One group from its first join to its last leave."""
    kind = Computed if is_computed else GroupLoad
    load: Any = kind(server.port, [TOPIC], PARTITIONS, software=client_of(server))
    if is_computed:
        await load.open_side()
    await load.connect(MEMBERS + 1)
    for number in range(MEMBERS):
        load.add(number)
    found[WHAT[0]].append(await load.settle())
    await asyncio.sleep(1.0)
    load.add(MEMBERS)
    found[WHAT[1]].append(await load.settle())
    await asyncio.sleep(1.0)
    load.members[-1].leave()
    found[WHAT[2]].append(await load.settle())
    await load.leave()


def measure(runs: int) -> list[Table]:
    with ExitStack() as stack:
        stack.enter_context(many_files())
        server = stack.enter_context(KohortServer())
        connection = RawConnection(server.port)
        create_topic(connection, TOPIC, PARTITIONS)
        connection.close()
        found: list[Figures] = [{what: [] for what in WHAT} for _ in range(2)]
        for run in range(runs + 1):
            for place, is_computed in enumerate((True, False)):
                counted = found[place] if run else {what: [] for what in WHAT}
                asyncio.run(measure_run(server, counted, is_computed=is_computed))
    return [Table("clientside", "Targets that a member computes", _rows(found, runs), [])]


def _rows(found: list[Figures], runs: int) -> list[Row]:
    return [
        compare(
            what,
            found[0][what],
            found[1][what],
            unit="s",
            reach=REACH,
            peer_name="the broker's uniform",
            how=warmed(runs),
            less_is_better=True,
        )
        for what in WHAT
    ]
