"""Selection of the assignors' kernels: compiled C or plain Python.

Laws: both give the same owners. The environment variable KOHORT_KERNELS is read when this module is imported: "c" needs
compiled kernels; "python" and "numpy" (no NumPy form exists here) select plain Python; unset means C where compiled.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from kohort.records.kernel_form import asked_kernels, is_compiled_form, not_compiled, plain_form

if TYPE_CHECKING:
    from kohort.assign import balance_kernels, chain_kernels, kernels


def chosen_form(module: ModuleType, asked: str) -> ModuleType:
    """Return a kernel module in the form that `asked` selects, a value of KOHORT_KERNELS.

    Raises:
        ConfigError: `asked` is "c", and the module was not compiled.
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
