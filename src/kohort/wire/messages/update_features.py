"""UpdateFeatures (key 57), KIP-584: set the levels of a cluster's features.

Version 1: in place of `allow_downgrade` the kind of the change, and whether it is only tried (KIP-778). Version 2:
all or none, so that there is one error and no result per feature. Flexible from the first version.
"""

from kohort.wire.schema import BOOL, INT8, INT16, INT32, STRING, Message, array, field, message


class FeatureUpdateKey(Message):
    """One feature; a level below 1 removes it. `upgrade_type` 1: up only, 2: down without loss, 3: down."""

    feature: str = field(STRING)
    max_version_level: int = field(INT16)
    allow_downgrade: bool = field(BOOL, until=0)
    upgrade_type: int = field(INT8, since=1, default=1)


@message(key=57, kind="request", versions="0-2", flexible="0+")
class UpdateFeaturesRequest(Message):
    """Features and their new levels."""

    timeout_ms: int = field(INT32, default=60000)
    feature_updates: list[FeatureUpdateKey] = field(array(FeatureUpdateKey))
    validate_only: bool = field(BOOL, since=1)


class UpdatableFeatureResult(Message):
    """The result for one feature."""

    feature: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)


@message(key=57, kind="response", versions="0-2", flexible="0+")
class UpdateFeaturesResponse(Message):
    """An error for all of it; up to version 1 one answer per feature."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)
    results: list[UpdatableFeatureResult] = field(array(UpdatableFeatureResult), until=1)
