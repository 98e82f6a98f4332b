"""The start-up budget: what importing a door may load."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("numpy", "pyarrow", "pyspark", "pandas", "matplotlib")


def modules_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return {name.partition(".")[0] if not name.startswith("kohort") else name for name in run.stdout.split()}


@pytest.mark.parametrize(
    "statement",
    [
        "import kohort",
        "import kohort.broker.embedded",
        "import kohort.cli.main",
        "from kohort import Consumer, Producer, Admin",
    ],
)
def test_nothing_heavy_is_loaded(statement: str) -> None:
    """Architecture rule 14: the start path imports no numpy, pyarrow or pyspark."""
    assert not modules_after(statement) & set(HEAVY)


@pytest.mark.parametrize("door", ["Consumer", "Producer", "Admin"])
def test_importing_a_door_loads_nothing_that_its_thread_needs(door: str) -> None:
    """A loop and its sockets are loaded when the thread starts: a fifth of the import was theirs."""
    loaded = modules_after(f"from kohort import {door}")
    assert "kohort.client.core.thread" in loaded
    assert not {"asyncio", "socket", "ssl", "selectors", "subprocess", "uuid", "platform", "pathlib"} & loaded
    assert not {"kohort.client.core.driver", "kohort.client.kafkaoptions", "difflib", "urllib", "email"} & loaded


@pytest.mark.parametrize("door", ["Consumer", "Producer"])
def test_importing_a_door_loads_no_machine(door: str) -> None:
    """Half of the import was the machine's, which is needed when a client is made."""
    loaded = modules_after(f"from kohort import {door}")
    assert not {f"kohort.client.{door.lower()}.core.{door.lower()}_machine", "kohort.client.core.cluster"} & loaded


@pytest.mark.parametrize("door", ["Consumer", "Producer"])
def test_importing_a_door_for_loops_loads_no_other_door_and_no_driver(door: str) -> None:
    """Both doors, and what they need with their first call, were a third of the import."""
    loaded = modules_after(f"from kohort.aio import {door}")
    assert f"kohort.client.{door.lower()}.aio_{door.lower()}" in loaded
    other = "producer" if door == "Consumer" else "consumer"
    assert (
        not {f"kohort.client.{other}.aio_{other}", "kohort.client.core.driver", "kohort.client.core.cluster"} & loaded
    )


def test_broker_loads_what_finds_assignors_of_the_users_own_only_for_them() -> None:
    """To look through the installed packages takes longer than the rest of the start."""
    loaded = modules_after("import kohort.broker.server")
    assert "kohort.broker.groups.runtime" in loaded
    # importlib.metadata loads email.
    assert not {"kohort.broker.processes.assignorloading", "email", "pickle"} & loaded


def test_columns_are_read_and_sent_without_pandas() -> None:
    """What Arrow makes of a value of Python's loads pandas: five times the memory that a small read needs."""
    loaded = modules_after(
        "from kohort.columnar import DEFAULT_COLUMNS, to_record_batch\n"
        "from kohort.columnar.payloads import payloads_of\n"
        "from kohort.records.batch import build_batch\n"
        "from kohort.records.columns import gather_columns\n"
        "from kohort.records.scan import scan_batches\n"
        "columns = gather_columns([(scan_batches(build_batch([(b'k', b'v', 0, [('name', b'content')])] * 2)), 0, 2)])\n"
        "runs = [('orders', 0, 1), ('orders', 1, 1)]\n"
        "batch = to_record_batch(columns, runs=runs, include=(*DEFAULT_COLUMNS, 'headers'))\n"
        "to_record_batch(columns, runs=runs, include=())\n"
        "assert len(payloads_of(batch.select(['key', 'value', 'topic', 'partition', 'headers']), None, time_ms=0)) == 1"
    )
    assert "pyarrow" in loaded
    assert "pandas" not in loaded


def test_importing_kohort_loads_neither_broker_nor_client() -> None:
    """The public names are lazy."""
    loaded = modules_after("import kohort")
    assert not {name for name in loaded if name.startswith(("kohort.broker", "kohort.client"))}


def test_cores_run_without_loop_socket_or_thread() -> None:
    """Purity, proved: a core imports in a process whose import system refuses what a core must not touch."""
    cores = [
        "kohort.coordinator.shard",
        "kohort.wire.codec",
        "kohort.records.header",
        "kohort.client.consumer.core.consumer_machine",
    ]
    code = (
        "import sys\n"
        "class Refuse:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        assert name not in ('asyncio', 'socket', 'threading', '_thread_refused'), name\n"
        "sys.modules.pop('threading', None)\n"
        "sys.meta_path.insert(0, Refuse())\n" + "".join(f"import {core}\n" for core in cores)
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
