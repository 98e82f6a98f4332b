"""ApiVersions (key 18), KIP-35: the requests and versions that a broker serves.

Versions 0 to 2: the request is empty; the response gains the throttle time in 1, which from 2 on is served by
muting the connection after the answer instead of delaying it (KIP-219).
Version 3: flexible (KIP-482). The request names the client's software (KIP-511), the response carries the cluster's
features in tagged fields (KIP-584) and the state of a ZooKeeper migration (KIP-866).
Version 4: a feature's lowest version may be 0, which older clients reject (KAFKA-17011).

The response header is always version 0, even where the body is flexible: a client that asks with a version the broker
does not know must be able to read the refusal, whose body is version 0 and lists the broker's range for this request.
"""

from kohort.wire.schema import BOOL, INT16, INT32, INT64, STRING, Message, array, field, message


@message(key=18, kind="request", versions="0-4", flexible="3+")
class ApiVersionsRequest(Message):
    """Name and version of the asking software; empty before version 3."""

    client_software_name: str = field(STRING, since=3)
    client_software_version: str = field(STRING, since=3)


class ApiVersion(Message):
    """One request of the broker and the versions of it that it accepts, both ends included."""

    api_key: int = field(INT16)
    min_version: int = field(INT16)
    max_version: int = field(INT16)


class SupportedFeatureKey(Message):
    """A feature that this broker could run at these levels."""

    name: str = field(STRING)
    min_version: int = field(INT16)
    max_version: int = field(INT16)


class FinalizedFeatureKey(Message):
    """A feature as the whole cluster has switched it on; the higher level stands first on the wire."""

    name: str = field(STRING)
    max_version_level: int = field(INT16)
    min_version_level: int = field(INT16)


@message(key=18, kind="response", versions="0-4", flexible="3+")
class ApiVersionsResponse(Message):
    """The broker's requests; `finalized_features_epoch` is -1 while no features are known."""

    error_code: int = field(INT16)
    api_keys: list[ApiVersion] = field(array(ApiVersion))
    throttle_time_ms: int = field(INT32, since=1)
    supported_features: list[SupportedFeatureKey] = field(array(SupportedFeatureKey), since=3, tag=0)
    finalized_features_epoch: int = field(INT64, since=3, tag=1, default=-1)
    finalized_features: list[FinalizedFeatureKey] = field(array(FinalizedFeatureKey), since=3, tag=2)
    zk_migration_ready: bool = field(BOOL, since=3, tag=3)
    #: Ours (wire.private): the version of kohort that the broker is of, for people.
    broker_version: str | None = field(STRING, since=3, nullable=3, tag=10_000, default=None)
