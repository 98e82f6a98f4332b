"""Which form of the assignors' kernels runs, and that it makes no difference."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kohort.assign import balance_kernels, chain_kernels, choice, kernels
from kohort.assign.choice import chosen_form
from kohort.errors import ConfigError
from kohort.records.kernel_form import is_compiled_form, plain_form

MODULES = (kernels, balance_kernels, chain_kernels)
TESTS = Path(__file__).parents[2]

#: Assigns groups made of seeds with every assignor and prints one number for all that came out.
ASSIGN_SEEDS = """
import sys, zlib
sys.path.insert(0, {tests!r})
from random import Random
from kohort.assign.ownership import changed_members, gather_owners, spread_owners
from kohort.assign.assignors import BUILT_IN, built_in
from kohort.records.kernel_form import is_compiled_form
from kohort.assign.choice import balance_kernels, chain_kernels, kernels
from support.builders.assignables import random_group
print(*(is_compiled_form(module) for module in (kernels, balance_kernels, chain_kernels)))
found = 0
for seed in range(60):
    random = Random(seed)
    group = random_group(random)
    for name in BUILT_IN:
        after = built_in(name).assign(group)
        spread = spread_owners(group.space, after, range(len(group.members)))
        assert gather_owners(group.space, list(spread.values())) == after
        changed = changed_members(group.owner, after, len(group.members))
        found = zlib.crc32(repr((after.tolist(), changed, spread)).encode(), found)
print(found, *sorted({{"numpy", "cython", "Cython"}} & set(sys.modules)))
"""


def run(asked: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "KOHORT_KERNELS": asked}
    return subprocess.run(
        [sys.executable, "-c", ASSIGN_SEEDS.format(tests=str(TESTS))],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=environment,
    )


@pytest.mark.process
def test_compiled_and_plain_kernels_give_the_same_owners_and_load_nothing_heavy() -> None:
    usual, plain = run(""), run("python")
    assert usual.returncode == plain.returncode == 0, usual.stderr + plain.stderr
    forms, found = usual.stdout.splitlines()
    assert forms.split() == [str(is_compiled_form(module)) for module in MODULES]
    assert plain.stdout.splitlines() == ["False False False", found]
    assert found.isdecimal(), "a heavy module was loaded"


def test_what_runs_is_compiled_where_it_can_be() -> None:
    asked = os.environ.get("KOHORT_KERNELS", "")
    chosen = (choice.kernels, choice.balance_kernels, choice.chain_kernels)
    assert chosen == tuple(chosen_form(module, asked) for module in MODULES)


@pytest.mark.parametrize("asked", ["python", "numpy"])
def test_plain_kernels_run_beside_their_compiled_form(asked: str) -> None:
    for module in MODULES:
        plain = chosen_form(module, asked)
        assert str(plain.__file__).endswith("kernels.py")
        assert plain is plain_form(module)


def test_asking_for_c_where_nothing_is_compiled_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match="the kernels are not compiled: install a wheel or a compiler"):
        chosen_form(plain_form(kernels), "c")


@pytest.mark.process
def test_unknown_kernels_are_refused() -> None:
    done = run("fortran")
    assert "KOHORT_KERNELS='fortran'; choose one of c, numpy, python" in done.stderr
