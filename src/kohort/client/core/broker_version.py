"""The software of a broker, by its answer to ApiVersions, for messages about features that it lacks.

Source: KIP-584 (features); kohort's own tag (docs/reference/private-protocol.md); Kafka's `MetadataVersion`.
"""

from __future__ import annotations

from typing import Final

from kohort.wire.messages.api_versions import ApiVersionsResponse

#: The feature that grows with every release of Apache Kafka, and the first of its levels that each release has.
_FEATURE: Final = "metadata.version"
_RELEASES: Final = {
    1: "3.0 to 3.2",
    4: "3.3",
    8: "3.4",
    9: "3.5",
    12: "3.6",
    15: "3.7",
    20: "3.8",
    21: "3.9",
    22: "4.0",
    26: "4.1",
    28: "4.2",
    30: "4.3",
}
#: The newest level known here; a broker with a higher one is a newer release.
_NEWEST: Final = max(_RELEASES)


def software_of(response: ApiVersionsResponse) -> str:
    """Name the broker's software and version, like "Apache Kafka 4.3" or "kohort's broker 0.1.0"."""
    if response.broker_version is not None:
        return f"kohort's broker {response.broker_version}"
    # The supported level tells more of the software than the level that the cluster has finalized.
    supported = {each.name: each.max_version for each in response.supported_features}
    finalized = {each.name: each.max_version_level for each in response.finalized_features}
    level = supported.get(_FEATURE, finalized.get(_FEATURE))
    if level is None:
        return "a broker that tells no release, perhaps Apache Kafka from before 3.3"
    release = next((release for first, release in reversed(_RELEASES.items()) if level >= first), "")
    return f"Apache Kafka {release} or newer" if level > _NEWEST else f"Apache Kafka {release}"
