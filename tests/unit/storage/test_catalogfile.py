"""The catalog's log: what was written is there again, whatever a crash tore or a disk has damaged."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from kohort.errors import StorageError
from kohort.ids import TopicId, format_topic_id
from kohort.storage import catalog as catalogfile
from kohort.storage.catalog import (
    CATALOG_NAME,
    FORMER_CATALOG_NAME,
    Catalog,
    CatalogChange,
    CatalogFile,
    ScramUser,
    TopicEntry,
    join,
    load_catalog,
    read_records,
)
from kohort.storage.client_quotas import QuotaChange, entity_of
from kohort.storage.files.fs import DiskFileSystem
from kohort.testing.disks import Crashed, MemoryFileSystem

PATH = f"/data/{CATALOG_NAME}"


def entry(number: int, **configs: str) -> TopicEntry:
    return TopicEntry(
        name=f"topic-{number}", topic_id=TopicId(number.to_bytes(16, "big")), partition_count=2, configs=configs
    )


def user(name: str, mechanism: str = "SCRAM-SHA-256") -> ScramUser:
    salt, key = name.encode(), b"\0\xff" * 16
    return ScramUser(
        name=name, mechanism=mechanism, iterations=4096, salt=salt, stored_key=key, server_key=key + b"server"
    )


def quota(parts: dict[str, str | None], **limits: float | None) -> QuotaChange:
    return QuotaChange(entity=entity_of(parts), limits=limits)


CHANGES = (
    CatalogChange(topics=(entry(1), entry(2, retention="5"))),
    CatalogChange(next_producer_id=1000),
    CatalogChange(gone=("topic-1",)),
    CatalogChange(topics=(entry(3),), is_freed=True, broker_configs={"log.retention.ms": '@00000004 "\u00e9'}),
    CatalogChange(scram_users=(user("alice"), user("alice", "SCRAM-SHA-512"), user("b,\u00e9")), login_secret=b"\0\1"),
    CatalogChange(scram_users=(user("carol"),), scram_gone=(("alice", "SCRAM-SHA-256"),)),
    CatalogChange(acls=((2, 3, "*", "User:alice", "*", 3, 3), (2, 4, '@00000004 "\u00e9', "User:b", "::1", 2, 2))),
    CatalogChange(
        acls=((4, 3, "kafka-cluster", "User:c", "*", 7, 3),), acls_gone=((2, 3, "*", "User:alice", "*", 3, 3),)
    ),
    CatalogChange(
        client_quotas=(
            quota(
                {"user": "b,\u00e9\n@00000004", "client-id": None}, request_percentage=0.1, producer_byte_rate=2.0**63
            ),
            quota({"ip": None}, connection_creation_rate=5.0),
        )
    ),
    CatalogChange(client_quotas=(quota({"ip": None}, connection_creation_rate=None), quota({"user": "a"}, x=5e-324))),
)


@pytest.fixture
def fs() -> MemoryFileSystem:
    made = MemoryFileSystem()
    made.make_directory("/data")
    made.sync_directory("/")
    return made


def states() -> list[Catalog]:
    """The catalog after none of the changes, after the first, and so on."""
    found = [Catalog()]
    for change in CHANGES:
        found.append(found[-1].changed(change))
    return found


def written(fs: MemoryFileSystem) -> bytes:
    file = CatalogFile(fs, "/data")
    for change in CHANGES:
        file.write(change)
    return fs.open(PATH).read(0, 1 << 20)


def put(fs: MemoryFileSystem, raw: bytes) -> None:
    file = fs.open(PATH, create=True)
    file.truncate(0)
    file.write(0, raw)


def test_changes_are_there_again_and_go_on(fs: MemoryFileSystem) -> None:
    written(fs)
    assert states()[4].deleting == () and states()[3].deleting == (entry(1),)
    for number in range(4, 7):
        file = CatalogFile(fs, "/data")
        file.write(CatalogChange(topics=(entry(number),)))
    assert load_catalog(fs, "/data") == states()[-1].changed(*[CatalogChange(topics=(entry(n),)) for n in (4, 5, 6)])


def test_keys_of_users_are_not_shown() -> None:
    """Repr of what a log may have; their names are there."""
    shown = repr(states()[-1]) + repr(CHANGES)
    assert "alice" in shown
    assert "xff" not in shown
    assert "secret" not in shown


def test_file_is_its_owners(tmp_path: Path) -> None:
    """Also one that an earlier version has made for all to read."""
    path = tmp_path / CATALOG_NAME
    written = CatalogFile(DiskFileSystem(), str(tmp_path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    written.write(CHANGES[0])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_changes_of_different_things_may_be_one(fs: MemoryFileSystem) -> None:
    file = CatalogFile(fs, "/data")
    file.write(CHANGES[0])
    file.write(join([CHANGES[1], CHANGES[2]]))
    assert load_catalog(fs, "/data") == states()[3]


def test_a_file_that_ends_at_any_byte_has_the_changes_before(fs: MemoryFileSystem) -> None:
    """Zeros behind the end, as some file systems leave them, are no difference."""
    raw, expected = written(fs), states()
    begin = len(fs_of_no_changes())
    seen = set()
    for end in range(begin, len(raw) + 1):
        catalog, number, valid = read_records(raw[:end] + bytes((len(raw) - end) * (end % 2)), PATH)
        assert catalog == expected[number - 1]
        assert read_records(raw[:valid], PATH)[:2] == (catalog, number)
        seen.add(number)
    assert seen == set(range(1, len(CHANGES) + 2))


def fs_of_no_changes() -> bytes:
    other = MemoryFileSystem()
    other.make_directory("/data")
    CatalogFile(other, "/data")
    return other.open(PATH).read(0, 1 << 20)


def test_a_torn_end_is_cut_before_anything_follows(fs: MemoryFileSystem) -> None:
    raw = written(fs)
    put(fs, raw + raw[-200:-180])
    CatalogFile(fs, "/data").write(CatalogChange(topics=(entry(9),)))
    assert load_catalog(fs, "/data") == states()[-1].changed(CatalogChange(topics=(entry(9),)))


@pytest.mark.parametrize("bit", [1, 64])
def test_a_flipped_bit_loses_nothing(fs: MemoryFileSystem, bit: int) -> None:
    """Every change stands twice."""
    raw, expected = written(fs), states()[-1]
    for at in range(len(raw)):
        damaged = bytearray(raw)
        damaged[at] ^= bit
        assert read_records(bytes(damaged), PATH)[0] == expected, at


def test_a_change_that_is_missing_between_others_is_an_error(fs: MemoryFileSystem) -> None:
    raw = written(fs)
    first = raw.index(b"topic-1")
    second = raw.index(b"topic-1", first + 1)
    damaged = bytearray(raw)
    damaged[first] ^= 1
    damaged[second] ^= 1
    put(fs, bytes(damaged))
    with pytest.raises(StorageError, match=r"kohort.catalog is damaged \(change 2 is missing\); restore it from a"):
        CatalogFile(fs, "/data")
    assert fs.open(PATH).read(0, 1 << 20) == bytes(damaged), "nothing was touched"


@pytest.mark.parametrize(
    "change", [{"gone": ["never"]}, {"topics": [{}]}, {"topics": 5}, {"next_producer_id": "x"}, [], None]
)
def test_a_change_that_kohort_never_wrote_is_an_error(fs: MemoryFileSystem, change: object) -> None:
    raw = written(fs)
    put(fs, raw + catalogfile._record(len(CHANGES) + 2, change))  # type: ignore[arg-type]
    with pytest.raises(StorageError, match=r"kohort.catalog is damaged \(.*\); restore it from a backup"):
        CatalogFile(fs, "/data")


def test_the_file_is_rewritten_when_it_has_grown_too_long(
    fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogfile, "SPARE_BYTES", 500)
    file, sizes = CatalogFile(fs, "/data"), []
    file.write(CHANGES[0])
    for number in range(50):
        file.write(CatalogChange(next_producer_id=number))
        sizes.append(fs.open(PATH).size())
        assert load_catalog(fs, "/data") == file.catalog
    assert max(sizes) < 3_000
    assert sum(later < earlier for earlier, later in pairwise(sizes)) >= 2


def steps() -> Iterator[int]:
    yield from range(60)


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_power_fails_at_any_step_of_changes_and_rewriting(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogfile, "SPARE_BYTES", 100)
    finished = False
    for step in steps():
        fs = MemoryFileSystem()
        fs.make_directory("/data")
        fs.sync_directory("/")
        file = CatalogFile(fs, "/data")
        done = 0
        fs.steps_left = step
        try:
            for change in CHANGES:
                file.write(change)
                done += 1
            finished = True
        except Crashed:
            pass
        fs.crash(
            lambda _path, durable, size: durable + (size - durable) * kept // 2,
            changes_kept=lambda _path, unsynced: unsynced * kept // 2,
        )
        found = states().index(CatalogFile(fs, "/data").catalog)
        assert found in (done, done + 1), (step, found, done)
        if finished:
            return
    raise AssertionError("the changes never ended")


def test_what_does_not_fit_has_not_happened(fs: MemoryFileSystem) -> None:
    file = CatalogFile(fs, "/data")
    file.write(CHANGES[0])
    fs.space_left = 10
    with pytest.raises(StorageError, match="fit"):
        file.write(CHANGES[1])
    assert file.catalog == load_catalog(fs, "/data") == states()[1]
    fs.space_left = None
    file.write(CHANGES[1])
    assert file.catalog == load_catalog(fs, "/data") == states()[2]


def former(version: int) -> bytes:
    """The first format: one JSON document."""
    row = {"name": "orders", "topic_id": format_topic_id(TopicId(b"1" * 16)), "partition_count": 3, "configs": {}}
    document = {"format_version": version, "next_producer_id": 2000, "topics": [row], "deleting": []}
    return json.dumps(document).encode()


def test_the_first_format_is_taken_over(fs: MemoryFileSystem) -> None:
    fs.open(f"/data/{FORMER_CATALOG_NAME}", create=True).write(0, former(1))
    assert load_catalog(fs, "/data").next_producer_id == 2000
    file = CatalogFile(fs, "/data")
    assert (list(file.catalog.topics), file.catalog.topics["orders"].partition_count) == (["orders"], 3)
    assert not fs.exists(f"/data/{FORMER_CATALOG_NAME}")
    fs.crash()
    assert CatalogFile(fs, "/data").catalog == file.catalog


def test_a_newer_format_is_left_alone(fs: MemoryFileSystem) -> None:
    fs.open(f"/data/{FORMER_CATALOG_NAME}", create=True).write(0, former(2))
    with pytest.raises(StorageError, match=r"catalog.json has format 2, this kohort reads up to 1"):
        CatalogFile(fs, "/data")
    newer = catalogfile._record(0, {"kohort.catalog": 3}) + catalogfile._record(1, {"unheard": "of"})
    put(fs, newer)
    with pytest.raises(StorageError, match=r"kohort.catalog has format 3, this kohort reads up to 2; upgrade kohort"):
        CatalogFile(fs, "/data")
    assert fs.open(PATH).read(0, 1 << 20) == newer
