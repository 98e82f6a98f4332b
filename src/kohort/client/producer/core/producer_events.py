"""What the application asks of a producer's machine."""

from __future__ import annotations

from kohort.values import value


@value
class RecordsSubmitted:
    """There are records among the submissions."""


@value
class FlushAsked:
    """Send at once; the ticket ends when every record submitted so far has an end, good or bad, or at the deadline.

    It ends with the number of records that have none.
    """

    ticket: object
    #: `None` means never.
    deadline_ms: int | None = None


@value
class ProducerCloseAsked:
    """Flush, then end; at the deadline what is left fails. The ticket ends in either case."""

    ticket: object
    deadline_ms: int
    #: Nothing is logged of what was lost: whoever closes has heard of it, or of something worse.
    is_quiet: bool = False


@value
class PartitionsAsked:
    """The ticket ends with the numbers of a topic's partitions, ascending; none if there is no such topic."""

    topic: str
    ticket: object
    deadline_ms: int


@value
class ConnectAsked:
    """The ticket ends when a broker has answered, or with the error that says why none does."""

    ticket: object
    deadline_ms: int


ProducerEvent = RecordsSubmitted | FlushAsked | ProducerCloseAsked | PartitionsAsked | ConnectAsked
