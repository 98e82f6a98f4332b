"""What a broker is, by its answer to ApiVersions: what people are told where it lacks something."""

from __future__ import annotations

import pytest

from kohort.client.core.broker_version import software_of
from kohort.wire.messages.api_versions import ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey


def supports(level: int) -> ApiVersionsResponse:
    """A broker that could run that level, and whose cluster has switched on the lowest one."""
    return ApiVersionsResponse(
        supported_features=[SupportedFeatureKey(name="metadata.version", min_version=1, max_version=level)],
        finalized_features=[FinalizedFeatureKey(name="metadata.version", max_version_level=1, min_version_level=1)],
    )


@pytest.mark.parametrize(
    ("level", "release"),
    [(1, "3.0 to 3.2"), (7, "3.3"), (21, "3.9"), (25, "4.0"), (29, "4.2"), (30, "4.3"), (31, "4.3 or newer")],
)
def test_releases_of_apache_kafka_are_known_by_a_feature(level: int, release: str) -> None:
    """Levels as `kafka-storage version-mapping` of 4.3 tells them."""
    assert software_of(supports(level)) == f"Apache Kafka {release}"


def test_what_the_cluster_runs_is_told_where_nothing_else_is() -> None:
    finalized = FinalizedFeatureKey(name="metadata.version", max_version_level=27, min_version_level=1)
    assert software_of(ApiVersionsResponse(finalized_features=[finalized])) == "Apache Kafka 4.1"


def test_our_broker_says_what_it_is_and_others_may_be_silent() -> None:
    assert software_of(ApiVersionsResponse(broker_version="0.1.0")) == "kohort's broker 0.1.0"
    assert software_of(ApiVersionsResponse()).startswith("a broker that tells no release")
