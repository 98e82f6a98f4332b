"""Runs the long tests: whole tables, thousands of seeds, clusters, the other Pythons.

    make soak                         # everything; hours
    make soak ONLY="fuzz matrix"      # some of them
    make soak ONLY=list               # what there is, and how long each takes
    make soak ONLY=fuzz DEPTH=2 SEED=7

DEPTH multiplies seeds, inputs and lives; `tests/support/depth.py` reads it. Tests that `make test` runs as well take a
sample of the same tables there.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
DEPTH = max(1, int(os.environ.get("DEPTH") or "1"))
SEED = os.environ.get("SEED") or "0"
PYTEST = ("-m", "pytest", "-q")


class Soak(NamedTuple):
    """One of the long runs; each command is the arguments of the Python in .venv, or a shell's where it begins so."""

    about: str
    minutes: str
    commands: tuple[tuple[str, ...], ...]


def tests(*paths: str, jobs: int = 2, options: Sequence[str] = ()) -> tuple[str, ...]:
    """Build the arguments that run these test files."""
    return (*PYTEST, "-n", str(jobs), *options, *(f"tests/{path}" for path in paths))


def seeds(world: str, count: int) -> tuple[str, ...]:
    """Build the arguments that play so many seeds of a simulated world."""
    depth = ("--count", str(count * DEPTH), "--jobs", str(os.cpu_count() or 1), "--progress")
    return ("-m", "kohort.simulation.seed", f"--world={world}", *depth)


SOAKS: Mapping[str, Soak] = {
    "worlds": Soak("10,000 seeds of the brokers' world, with its laws", "40", (seeds("brokers", 10_000),)),
    "query-worlds": Soak("5,000 seeds of the queries' world", "30", (seeds("queries", 5_000),)),
    "transaction-worlds": Soak("10,000 seeds of the transactions' world", "2", (seeds("transactions", 10_000),)),
    "sink-worlds": Soak("10,000 seeds of the world of Spark's sink", "4", (seeds("sinks", 10_000),)),
    "client-worlds": Soak("1,000 seeds of the clients' world", "8", (seeds("clients", 1_000),)),
    "transforms": Soak(
        "broker and program of transactions, killed 1,000 times",
        "90",
        (tests("interop/test_transform_kills.py", jobs=0),),
    ),
    "kills": Soak("a broker under load, killed 1,000 times", "60", (tests("interop/test_kill_cycles.py", jobs=0),)),
    "transform-members": Soak(
        "two processes that transform, killed, frozen and removed, and their broker killed, 200 times each",
        "60",
        (tests("interop/test_transform_members.py", jobs=0),),
    ),
    "power-loss": Soak(
        "200 power cuts at every file operation of a broker", "10", (tests("unit/broker/test_power_loss.py"),)
    ),
    "faulty-disk": Soak(
        "every fault at every file operation of a broker's day", "5", (tests("unit/broker/test_faulty_disk.py"),)
    ),
    "models": Soak(
        "logs, transactions, retention, deletion and compaction against models, 500 histories each",
        "2",
        (
            tests(
                *(
                    f"unit/storage/test_{name}.py"
                    for name in ("partition_model", "transactions", "retention", "compaction")
                )
            ),
        ),
    ),
    "imports": Soak(
        "directories of Apache Kafka with every state of a transaction, and compacted ones, imported",
        "1",
        (tests("interop/test_import_transactions.py", jobs=0),),
    ),
    "flips": Soak(
        "one bit flipped in every byte of a data directory, and each fault of the disk under transactions",
        "1",
        (tests("unit/storage/test_bit_flips.py", "unit/storage/test_transaction_damage.py"),),
    ),
    "fuzz": Soak(
        "a million inputs each: frames, record batches, readers of files, directories, tokens; SEED draws others",
        "hours",
        (
            tests(
                *(f"fuzz/test_{name}.py" for name in ("frames", "batches", "readers", "files", "tokens")),
                options=("-s", "-o", "timeout=0"),
            ),
        ),
    ),
    "logins": Soak(
        "a million conversations of PLAIN and SCRAM, changed at some bytes; SEED draws others",
        "10",
        (tests("fuzz/test_sasl.py", options=("-s", "-o", "timeout=0")),),
    ),
    "rights": Soak(
        "100,000 questions about rights beside an oracle of ten lines; SEED draws others",
        "1",
        (tests("unit/security/test_authorizer.py"),),
    ),
    "capabilities": Soak(
        "capability tokens: a million children beside parents and an oracle, a million changed tokens and caveats; "
        "stock clients whose sessions end, and that are throttled, refused and revoked; Spark beside fences",
        "15",
        (
            tests(
                *(f"unit/security/test_{name}.py" for name in ("capability", "partition_sets", "root_keys")),
                options=("-o", "timeout=0"),
            ),
            tests("interop/test_token_clients.py", options=("--show-capture=no",)),
            tests("spark/test_stream.py", jobs=0, options=("-k", "enforced")),
        ),
    ),
    "worst-requests": Soak(
        "the longest request of each API that the limits let through: turns and memory",
        "2",
        (tests("unit/broker/test_worst_requests.py"),),
    ),
    "matrix": Soak(
        "what may happen to a cluster, ours and Apache Kafka's, to every kind of member",
        "30",
        (
            tests(
                *(f"interop/{path.name}" for path in sorted((ROOT / "tests/interop").glob("test_client_*.py"))),
                options=("--dist", "loadfile", "-k", "go_on or share"),
            ),
        ),
    ),
    "held-clients": Soak(
        "every client in every protocol while the coordinator holds its heartbeats, or what it says is lost",
        "80",
        (tests("interop/test_held_clients.py", jobs=0, options=("-s",)), ("-m", "support.scenarios.java_cost")),
    ),
    "refusal-codes": Soak(
        "every stock client while a leader withholds a partition by each code: its requests and errors",
        "10",
        (tests("interop/test_refusal_codes.py", jobs=0, options=("-s", "--show-capture=no")),),
    ),
    "static-groups": Soak(
        "static groups of every client in every protocol", "5", (tests("interop/test_static_groups.py"),)
    ),
    "many-partitions": Soak(
        "Spark reads 10,000 partitions, one of them with 99 of 100 records, as a batch and as a stream",
        "3",
        (tests("spark/test_batch.py", jobs=0, options=("-k", "many", "-o", "timeout=0")),),
    ),
    "exactly-once": Soak(
        "Spark's exactly-once sink, whose Java is killed before EndTxn, behind it and at any moment; at ours and at "
        "Apache Kafka",
        "30",
        tuple(
            ("-m", "support.scenarios.exactly_once_soak", "--rounds", str(5 * DEPTH), "--broker", kind, SEED)
            for kind in ("ours", "apache")
        ),
    ),
    "same-as-spark": Soak(
        "every option of the Spark source beside Spark's own", "2", (tests("spark/test_same_as_spark.py", jobs=0),)
    ),
    "secured": Soak(
        "each client by each login, with TLS and without, at our broker and Apache Kafka's; brokers that restart, move "
        "and sleep; 1,000 connections whose rights, user or certificate are taken away",
        "20",
        (
            tests(
                *(
                    f"interop/test_secured_{name}.py"
                    for name in ("matrix", "brokers", "cluster", "moves", "restart", "fleet", "tuesday")
                ),
                jobs=0,
                # What it prints of refusals and of times is a part of what it is for.
                options=("-rP", "--show-capture=stdout"),
            ),
            tests("spark/test_secured.py", jobs=0),
        ),
    ),
    "administered": Soak(
        "three brokers of Apache Kafka administered by commands, and while one is away",
        "1",
        (tests("interop/test_admin_apache_cluster.py", jobs=0),),
    ),
    "cluster": Soak(
        "Spark on a standalone cluster, an executor killed, both brokers; Spark Connect; a declarative pipeline",
        "10",
        (
            ("-m", "pip", "install", "-q", "--disable-pip-version-check", "pyspark[connect,pipelines]"),
            tests(*(f"spark/test_{name}.py" for name in ("cluster", "connect", "declarative")), jobs=0),
        ),
    ),
    "clients": Soak(
        "real clients while brokers and members come and go; memory has to stay flat",
        "10",
        (("tools/client_soak.py", "--seconds", str(600 * DEPTH)),),
    ),
    "queries": Soak(
        "rounds of two real Spark queries of a group that are stopped and killed, two minutes each; from SEED on",
        "400",
        (("-m", "support.scenarios.handover_soak", SEED, "--rounds", str(200 * DEPTH)),),
    ),
    "pythons": Soak(
        "the tests on each other Python from 3.11 to 3.14 that is installed",
        "15 each",
        (("bash", "tools/test_all.sh"),),
    ),
    "suites": Soak(
        "the example suites on FastStream, confluent-kafka and Spark, here and on Apache Kafka; 1,000 tests by xdist, "
        "of which nothing is left",
        "10",
        (tests("interop/test_suites.py", jobs=0),),
    ),
    "packages": Soak(
        "a release made, and each of its forms installed by each Python here, without network and compiler",
        "8",
        (("bash", "tools/setup.sh", "packages"), tests("interop/test_wheels.py", jobs=0)),
    ),
}


def main() -> int:
    """Run what was asked for, all of it although some fails; 1 if some did."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="SOAK", help=f"some of: {', '.join(SOAKS)} (default: all); or list")
    names = parser.parse_args().names or list(SOAKS)
    # The command that runs is ended as well: `subprocess.run` does so on its way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if names == ["list"]:
        for name, soak in SOAKS.items():
            print(f"{name:<15} {soak.minutes:>7} min  {soak.about}")
        return 0
    if unknown := [name for name in names if name not in SOAKS]:
        parser.error(f"unknown soak {unknown[0]}; known: {', '.join(SOAKS)}")
    failed = [name for number, name in enumerate(names, start=1) if not run(name, f"{number}/{len(names)}")]
    print(f"soak: {len(names) - len(failed)} passed" + (f", failed: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


def run(name: str, place: str) -> bool:
    """Run one, and say whether it passed."""
    soak = SOAKS[name]
    print(f"\nsoak: [{place}] {name}: {soak.about} ({soak.minutes} min)", flush=True)
    environment = {**os.environ, "DEPTH": str(DEPTH), "SEED": SEED, "PYTHONPATH": str(ROOT / "tests")}
    began = time.monotonic()
    for command in soak.commands:
        full = command if command[0] == "bash" else (sys.executable, *command)
        if subprocess.run(full, cwd=ROOT, env=environment, check=False).returncode:
            print(f"soak: {name} FAILED after {time.monotonic() - began:.0f} s", flush=True)
            return False
    print(f"soak: {name} passed in {time.monotonic() - began:.0f} s", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
