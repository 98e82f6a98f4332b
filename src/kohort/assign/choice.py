"""The choice of the form of the assignors' kernels: compiled C or plain Python.

Laws: both give the same owners. The environment variable KOHORT_KERNELS chooses when this module is imported: c insists
on C, python and numpy (there is no such form here) run plain Python; without it C where it was compiled.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from kohort.records.kernel_form import asked_kernels, is_compiled_form, not_compiled, plain_form

if TYPE_CHECKING:
    from kohort.assign import balance_kernels, chain_kernels, kernels


def chosen_form(module: ModuleType, asked: str) -> ModuleType:
    """Return the form of a kernel module that `asked`, as in KOHORT_KERNELS, stands for.

    Raises:
        ConfigError: C is asked for and the module was not compiled.
    """
    if asked == "c" and not is_compiled_form(module):
        raise not_compiled()
    return module if asked in ("", "c") else plain_form(module)


if not TYPE_CHECKING:
    from kohort.assign import balance_kernels, chain_kernels, kernels

    _asked = asked_kernels()
    kernels = chosen_form(kernels, _asked)
    balance_kernels = chosen_form(balance_kernels, _asked)
    chain_kernels = chosen_form(chain_kernels, _asked)

__all__ = ["balance_kernels", "chain_kernels", "chosen_form", "kernels"]
