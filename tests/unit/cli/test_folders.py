"""Where the demo writes: its own folder is made anew, and nothing of anybody else is touched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import kohort
from kohort.cli.folders import (
    DATA_NAME,
    MARK_NAME,
    PICTURE_NAME,
    REPORT_NAME,
    TOPIC,
    FolderRefusedError,
    take_demo_folder,
)


def run_broker(data: Path, *topics: str) -> None:
    """What a broker leaves behind: topics with a record each, and a group's offsets."""
    with kohort.Broker(data_dir=data) as broker:
        to = {"bootstrap_servers": broker.bootstrap_servers}
        with kohort.Producer(**to) as producer, kohort.Consumer(**to, group_id="g") as consumer:
            for topic in topics:
                producer.send(topic, value="kept").result(10)
                consumer.commit({kohort.TopicPartition(topic, 0): 1})


def everything_in(folder: Path) -> dict[str, bytes | None]:
    """Path -> content; `None` for folders."""
    return {str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes() for path in folder.rglob("*")}


@pytest.mark.parametrize("name", ["new", "deep/below/new", "."])
def test_a_new_or_empty_folder_is_taken_and_marked(tmp_path: Path, name: str) -> None:
    data = take_demo_folder(tmp_path / name)
    assert data == tmp_path / name / DATA_NAME
    assert list(data.iterdir()) == []
    assert "kohort demo" in (tmp_path / name / MARK_NAME).read_text()


def test_the_next_run_finds_no_trace_of_the_last_but_leaves_other_files(tmp_path: Path) -> None:
    run_broker(take_demo_folder(tmp_path), TOPIC)
    (tmp_path / PICTURE_NAME).write_text("a picture")
    (tmp_path / REPORT_NAME).write_text("a page")
    (tmp_path / "notes.txt").write_text("mine")

    assert list(take_demo_folder(tmp_path).iterdir()) == []
    assert {path.name for path in tmp_path.iterdir()} == {DATA_NAME, MARK_NAME, "notes.txt"}


@pytest.mark.parametrize("left", [(), (DATA_NAME,), (DATA_NAME, f"{DATA_NAME}/{TOPIC}-0")])
def test_what_an_interrupted_run_leaves_is_made_anew(tmp_path: Path, left: tuple[str, ...]) -> None:
    take_demo_folder(tmp_path)
    (tmp_path / DATA_NAME).rmdir()
    for folder in left:
        (tmp_path / folder).mkdir()
    assert list(take_demo_folder(tmp_path).iterdir()) == []


@pytest.mark.parametrize("name", [DATA_NAME, "checkpoint", PICTURE_NAME, REPORT_NAME, "notes.txt", "log4j2.properties"])
@pytest.mark.parametrize("kind", [Path.mkdir, Path.touch])
def test_a_folder_without_the_mark_is_refused_and_left_as_it_was(
    tmp_path: Path, name: str, kind: Callable[[Path], None]
) -> None:
    kind(tmp_path / name)
    with pytest.raises(FolderRefusedError, match=f"holds {name} and not the demo's mark .*--output DIR"):
        take_demo_folder(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_the_data_of_a_broker_of_ones_own_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    run_broker(tmp_path / DATA_NAME, "orders")
    before = everything_in(tmp_path)
    with pytest.raises(FolderRefusedError, match="holds data and not"):
        take_demo_folder(tmp_path)
    assert everything_in(tmp_path) == before


@pytest.mark.parametrize(
    "name", ["notes.txt", "orders-0/00000000000000000000.log", f"{TOPIC}-0/notes.txt", f"{TOPIC}-0/more/x"]
)
def test_files_inside_the_data_are_refused_by_name(tmp_path: Path, name: str) -> None:
    file = take_demo_folder(tmp_path) / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("mine")
    (tmp_path / PICTURE_NAME).write_text("a picture")
    before = everything_in(tmp_path)
    with pytest.raises(FolderRefusedError) as refusal:
        take_demo_folder(tmp_path)
    assert f"{tmp_path}/data holds {name.removesuffix('/00000000000000000000.log').removesuffix('/x')}, which" in str(
        refusal.value
    )
    assert everything_in(tmp_path) == before


def test_a_topic_that_was_made_in_the_demos_data_is_refused_by_name(tmp_path: Path) -> None:
    run_broker(take_demo_folder(tmp_path), TOPIC, "orders")
    before = everything_in(tmp_path)
    with pytest.raises(FolderRefusedError, match="holds orders-0, which the demo did not write"):
        take_demo_folder(tmp_path)
    assert everything_in(tmp_path) == before


@pytest.mark.parametrize("name", [DATA_NAME, f"{DATA_NAME}/{TOPIC}-0", PICTURE_NAME, REPORT_NAME, MARK_NAME])
def test_links_are_not_followed(tmp_path: Path, name: str) -> None:
    """A link in the place of a folder of the demo's leads to somebody's files."""
    mine, place = tmp_path / "mine", tmp_path / "place"
    (mine / "deep").mkdir(parents=True)
    (mine / "deep" / "notes.txt").write_text("mine")
    take_demo_folder(place)
    link = place / name
    if name == DATA_NAME:
        link.rmdir()
    link.unlink(missing_ok=True)
    link.symlink_to(mine)
    with pytest.raises(FolderRefusedError, match="left alone"):
        take_demo_folder(place)
    assert (link / "deep" / "notes.txt").read_text() == "mine"


def test_data_that_a_broker_is_at_work_on_is_refused(tmp_path: Path) -> None:
    data = take_demo_folder(tmp_path)
    (tmp_path / PICTURE_NAME).write_text("a picture")
    with kohort.Broker(data_dir=data):
        with pytest.raises(FolderRefusedError, match="data is in use by a running broker: stop it"):
            take_demo_folder(tmp_path)
        assert (data / "meta.properties").exists()
        assert (tmp_path / PICTURE_NAME).exists()


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(FolderRefusedError, match="is a file"):
        take_demo_folder(file)
    with pytest.raises(FolderRefusedError, match=r"cannot be written to \(Not a directory\)"):
        take_demo_folder(file / "below")
    assert file.read_text() == "mine"


def test_a_folder_that_cannot_be_written_to_is_refused() -> None:
    """/proc takes no folders, whoever asks."""
    with pytest.raises(FolderRefusedError, match=r"/proc/demo cannot be written to \(.*\); name another folder"):
        take_demo_folder(Path("/proc/demo"))
