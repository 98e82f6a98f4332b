"""How descriptors are divided between clients and logs."""

from __future__ import annotations

import resource

import pytest

from kohort.broker.limits.connection_quotas import divide, raise_limit, shares


@pytest.mark.parametrize("descriptors", [64, 256, 1024, 20_000, 1 << 20])
@pytest.mark.parametrize("has_files", [True, False])
def test_a_fifth_is_left_for_everything_else(descriptors: int, has_files: bool) -> None:
    found = divide(descriptors, 10_000, has_files=has_files)
    assert found.connections + found.files <= descriptors * 4 // 5 + (not has_files)
    assert found.connections <= 10_000
    if has_files:
        assert found.files >= descriptors * 4 // 5 // 2 or found.files == 16_384


def test_without_files_all_of_it_is_for_connections() -> None:
    assert divide(1024, 10_000, has_files=False).connections == 819


def test_the_soft_limit_becomes_the_hard_one_and_is_what_counts() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        assert shares(10_000, has_files=True).connections == 102
        raise_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
