"""The events by which the application's side addresses a producer's machine."""

from __future__ import annotations

from kohort.values import value


@value
class RecordsSubmitted:
    """The news that there are records among the submissions."""


@value
class FlushAsked:
    """The request to send at once, and to end the ticket when every record so far has its end.

    At the deadline the ticket ends, too; with the number of records without an end.
    """

    ticket: object
    #: `None` means never.
    deadline_ms: int | None = None


@value
class ProducerCloseAsked:
    """The request to flush and end; at the deadline the rest fails. The ticket ends in either case."""

    ticket: object
    deadline_ms: int
    #: Whether the log says nothing of lost records: the closing call is ended by another error already.
    is_quiet: bool = False


@value
class PartitionsAsked:
    """The question for a topic's partitions; the answer is ascending, empty without such a topic."""

    topic: str
    ticket: object
    deadline_ms: int


@value
class ConnectAsked:
    """The question whether a broker answers; the ticket ends when one has, or with the error."""

    ticket: object
    deadline_ms: int


ProducerEvent = RecordsSubmitted | FlushAsked | ProducerCloseAsked | PartitionsAsked | ConnectAsked
