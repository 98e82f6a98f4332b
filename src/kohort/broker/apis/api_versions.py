"""ApiVersions (key 18): the APIs, versions and features that this broker serves.

Every version from 0 to 4 is served; a later one is answered in version 0 with UNSUPPORTED_VERSION (KIP-511).
APIs of our own (`wire.private`) and the version of kohort are told to kohort's clients alone, which name their software
(KIP-511).
Produce is announced from version 0 though it is served from 3 on: librdkafka infers from the range what a broker can
do. The lowest level of each feature is 0, which clients before version 4 reject (KAFKA-17011), so they are only told
that it is switched on.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from kohort.base import VERSION
from kohort.broker.context import BrokerContext, Request
from kohort.errors import ErrorCode
from kohort.wire.codec import encode
from kohort.wire.messages import api_versions as wire
from kohort.wire.private import API_VERSIONS, SOFTWARE_NAME
from kohort.wire.registry import SERVED, ApiKey

#: Feature -> its level. group.version 1: clients use KIP-848. transaction.version 2: each transaction has an epoch of
#: its own, and batches add their partitions (KIP-890).
_FEATURES: Final = {"group.version": 1, "transaction.version": 2}
#: Characters that are kept of the software name that a client sends.
_LONGEST_NAME: Final = 100
#: Lowest versions that are announced where they differ from those served.
_ANNOUNCED_FROM: Final[dict[int, int]] = {ApiKey.PRODUCE: 0}


def handle(context: BrokerContext, request: Request, message: wire.ApiVersionsRequest) -> bytes:
    """Answer with the served versions; tell clients of kohort the private APIs as well."""
    del context
    # Before version 3 a request has no software name (KIP-511).
    if request.version >= 3:
        request.connection.software = message.client_software_name[:_LONGEST_NAME]
    is_ours = request.version >= 3 and message.client_software_name == SOFTWARE_NAME
    return _encoded(request.version, is_ours=is_ours)


def refuse_version(context: BrokerContext, request: Request, message: object) -> bytes:
    """Answer an unsupported version of ApiVersions with an error and its supported versions (KIP-511)."""
    del context, request, message
    return _encoded(0, error=ErrorCode.UNSUPPORTED_VERSION)


@cache
def _encoded(version: int, *, is_ours: bool = False, error: ErrorCode = ErrorCode.NONE) -> bytes:
    announced: list[tuple[int, tuple[int, int]]] = [*SERVED.items(), *(API_VERSIONS.items() if is_ours else ())]
    if error is ErrorCode.UNSUPPORTED_VERSION:
        # A client that finds the other APIs here does not ask again, and leaves its software name out: franz-go.
        announced = [row for row in announced if row[0] == ApiKey.API_VERSIONS]
    keys = [
        wire.ApiVersion(api_key=key, min_version=_ANNOUNCED_FROM.get(key, lowest), max_version=highest)
        for key, (lowest, highest) in announced
    ]
    supported = [
        wire.SupportedFeatureKey(name=name, min_version=0, max_version=level)
        for name, level in _FEATURES.items()
        if version >= 4
    ]
    response = wire.ApiVersionsResponse(
        error_code=error,
        api_keys=keys,
        supported_features=supported,
        finalized_features_epoch=1,
        finalized_features=[
            wire.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in _FEATURES.items()
        ],
        broker_version=VERSION if is_ours else None,
    )
    return encode(response, version)
