"""FindCoordinator (key 10): the broker that coordinates a group or a transaction.

Version 1: kinds of keys (KIP-98), throttle time and error messages. Version 2: throttled after the answer (KIP-219).
Version 3: flexible (KIP-482). Version 4: many keys at once; the single key of the request and the single answer are
gone from here on (KIP-699). Version 5: the error TRANSACTION_ABORTABLE (KIP-890). Version 6: share groups, whose
key is `group:topic id:partition` (KIP-932).
"""

from kohort.wire.schema import INT8, INT16, INT32, STRING, Message, array, field, message


@message(key=10, kind="request", versions="0-6", flexible="3+")
class FindCoordinatorRequest(Message):
    """Keys to look up; `key_type` is 0 for groups, 1 for transactions, 2 for share groups."""

    key: str = field(STRING, until=3)
    key_type: int = field(INT8, since=1)
    coordinator_keys: list[str] = field(array(STRING), since=4)


class Coordinator(Message):
    """The answer for one key; the node is -1 and the host empty where there is an error."""

    key: str = field(STRING)
    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)


@message(key=10, kind="response", versions="0-6", flexible="3+")
class FindCoordinatorResponse(Message):
    """Up to version 3 one coordinator in the fields themselves, after it one per key in `coordinators`."""

    throttle_time_ms: int = field(INT32, since=1)
    error_code: int = field(INT16, until=3)
    error_message: str | None = field(STRING, since=1, until=3, nullable=1)
    node_id: int = field(INT32, until=3)
    host: str = field(STRING, until=3)
    port: int = field(INT32, until=3)
    coordinators: list[Coordinator] = field(array(Coordinator), since=4)
