"""Answers that are encoded in slices are those that are encoded at once, in every version."""

from __future__ import annotations

from functools import partial

import pytest

from kohort.broker.apis import describe_log_dirs, metadata
from kohort.broker.chunked_responses import EncodedRows
from kohort.broker.dispatch import Routes
from kohort.wire.codec import encode
from kohort.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsTopic,
)
from kohort.wire.messages.metadata import MetadataRequest
from kohort.wire.registry import VERSIONS, ApiKey
from support.dialogues.broker_wire import RawClient


def versions(key: ApiKey) -> range:
    return range(VERSIONS[key][0], VERSIONS[key][1] + 1)


@pytest.fixture
def topics(client: RawClient) -> list[str]:
    """Their rows are of different lengths; the number of rows takes one byte, or two."""
    names = [f"t{'x' * (number % 7)}{number}" for number in range(150)]
    for name in names[:8]:
        client.create_topic(name, 1 + len(name))
    for name in names[8:]:
        client.create_topic(name)
    return names


@pytest.mark.large
@pytest.mark.parametrize("version", versions(ApiKey.METADATA))
def test_metadata_in_slices_is_that_encoded_at_once(
    client: RawClient, topics: list[str], version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = MetadataRequest(
        topics=None if version else [],
        include_topic_authorized_operations=version >= 8,
        include_cluster_authorized_operations=8 <= version <= 10,
    )
    whole = client.ask(ApiKey.METADATA, version, request)
    for rows_at_once in (1, 3, 50):
        monkeypatch.setattr(metadata, "ROWS_AT_ONCE", rows_at_once)
        assert client.ask(ApiKey.METADATA, version, request) == whole
    # The coordinator's log is one more.
    assert {row.name for row in whole.topics} >= set(topics) and len(whole.topics) == len(topics) + 1


@pytest.mark.large
@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_LOG_DIRS))
def test_directories_in_slices_are_those_encoded_at_once(
    client: RawClient, topics: list[str], version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = [DescribableLogDirTopic(topic=name, partitions=[0, 2, 99]) for name in (*topics[:3], "unknown")]
    for asked in (None, some, []):
        request = DescribeLogDirsRequest(topics=asked)
        monkeypatch.setattr(describe_log_dirs, "ROWS_AT_ONCE", 10_000)
        whole = client.ask(ApiKey.DESCRIBE_LOG_DIRS, version, request)
        monkeypatch.setattr(describe_log_dirs, "ROWS_AT_ONCE", 3)
        assert client.ask(ApiKey.DESCRIBE_LOG_DIRS, version, request) == whole
        found = {row.name: len(row.partitions) for row in whole.results[0].topics}
        if asked == some:
            assert found == {topics[0]: 2, topics[1]: 2, topics[2]: 2}
        else:
            assert len(found) == (0 if asked == [] else len(topics) + 1)


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_LOG_DIRS))
@pytest.mark.parametrize("count", [0, 1, 126, 127, 128, 300])
def test_bytes_are_those_of_the_whole_answer(version: int, count: int) -> None:
    behind = 16 * (version >= 4) + (version >= 5) + (version >= 2)
    respond = partial(describe_log_dirs.respond, "/data", (2, 1))
    rows = [DescribeLogDirsTopic(name=f"t{number}", partitions=[]) for number in range(count)]
    encoded = EncodedRows(Routes().resolve(ApiKey.DESCRIBE_LOG_DIRS, version), respond, behind=behind)
    for begin in range(0, count, 100):
        encoded.add(rows[begin : begin + 100])
    assert encoded.body() == encode(respond(rows), version)
