"""Partition leaders and coordinators, as one broker knows them.

A broker of this package is alone: it leads every partition, in a leader epoch that began after the last unclean stop.
All responses about leaders and coordinators are built from this module nevertheless, so that the brokers of
`kohort.testing.Cluster` only replace this class.

Source: Apache Kafka's `Partition.checkCurrentLeaderEpoch` (KIP-320): the epoch is checked before the leader.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kohort.broker.connections.request import Peer
from kohort.broker.options.listeners import EVERY_INTERFACE
from kohort.broker.options.settings import BrokerSettings
from kohort.errors import ErrorCode, Refused
from kohort.storage.partitions.leader_epochs import UNKNOWN
from kohort.storage.partitions.partition import PartitionLog

#: The node id that stands for no broker.
NO_NODE: Final = -1


class Node(NamedTuple):
    """A broker as the metadata responses list it: node id, host and port."""

    node_id: int
    host: str
    port: int


class Leadership:
    """One broker that leads every partition and coordinates every group."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.node_id: Final = settings.node_id
        self._listeners: Final = {each.name: each for each in settings.listeners}
        #: Name of a listener -> the address listened on; the port is set once its socket is bound.
        self.addresses = {each.name: (each.host, each.port) for each in settings.listeners}

    @property
    def replicas(self) -> Sequence[int]:
        """The brokers that hold every partition."""
        return (self.node_id,)

    def offline_replicas(self, log: PartitionLog) -> list[int]:
        """Return the brokers with an offline replica of a partition."""
        return list(self.replicas) if log.offline else []

    def nodes(self, peer: Peer) -> list[Node]:
        """Return the brokers with their advertised addresses for the listener of `peer`."""
        listener = self._listeners[peer.listener.name]
        host, port = self.addresses[listener.name]
        host = listener.advertised_host or host
        if host in EVERY_INTERFACE:
            # The listener is bound to every interface. The client can reach the address that it has connected to.
            host = peer.local_host
        return [Node(self.node_id, host, port if listener.advertised_port is None else listener.advertised_port)]

    def leader_of(self, log: PartitionLog) -> int:
        """Return the broker that leads a partition; `NO_NODE` if none does."""
        return NO_NODE if log.offline else self.node_id

    def coordinator_of(self, group_id: str) -> int:
        """Return the broker that coordinates a group; `NO_NODE` if none does."""
        return self.node_id

    def transaction_coordinator_of(self, transactional_id: str) -> int:
        """Return the broker that coordinates the transactions of an id; `NO_NODE` if none does."""
        return self.node_id

    def refusal(self, log: PartitionLog, epoch: int) -> ErrorCode:
        """Return the error that refuses a partition to a client with leader epoch `epoch`.

        Args:
            epoch: -1 if the client does not say.

        Returns:
            NONE if the broker serves the partition to that client.
        """
        if log.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        # KIP-320: a client with an older epoch may have missed a truncation. A newer epoch is unknown to this broker.
        if epoch < 0 or epoch == log.leader_epoch:
            return ErrorCode.NONE
        return ErrorCode.FENCED_LEADER_EPOCH if epoch < log.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH

    def end_of_epoch(self, log: PartitionLog, epoch: int) -> tuple[int, int]:
        """Return the last epoch up to `epoch` with records, and its end offset; (-1, -1) if unknown.

        Source: OffsetForLeaderEpoch, KIP-320.
        """
        return log.epochs.end_of(epoch, current=log.leader_epoch, end_offset=log.high_watermark)

    def divergence(self, log: PartitionLog, epoch: int, offset: int) -> tuple[int, int] | None:
        """Return the point where a reader's history diverges from the log; `None` if it does not.

        The reader's last record was of `epoch`, before `offset`.

        Args:
            epoch: -1 if the client does not say.

        Raises:
            Refused: OFFSET_OUT_OF_RANGE, for an epoch that this log never had.

        Source: Fetch from version 12 on, KIP-595; Apache Kafka's `Partition.readRecords`.
        """
        if epoch < 0:
            return None
        end = self.end_of_epoch(log, epoch)
        if end == UNKNOWN:
            raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, f"{log.topic}-{log.partition} never had leader epoch {epoch}")
        return end if end[0] < epoch or end[1] < offset else None
