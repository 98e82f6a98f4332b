"""The kernel modules, compiled or plain, and the form that KOHORT_KERNELS asks for.

Laws: nothing heavy is imported here, so that every module with kernels can import it.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES, SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from os import environ, path
from types import ModuleType
from typing import Final

from kohort.errors import ConfigError

VARIABLE: Final = "KOHORT_KERNELS"
NAMES: Final = ("c", "numpy", "python")
#: All that are compiled where there is a C compiler, in the package.
MODULES: Final = (
    "assign/balance_kernels",
    "assign/chain_kernels",
    "assign/kernels",
    "client/producer/core/submission_kernels",
    "records/build_kernels",
    "records/kernels",
    "records/row_kernels",
    "records/span_kernels",
)
_SLOWER: Final = "plain Python, up to 6 times slower"
_REMEDY: Final = "install a wheel or a compiler"


def asked_kernels() -> str:
    """Return the form that KOHORT_KERNELS asks for; "" if it is not set.

    Raises:
        ConfigError: there is no such form.
    """
    asked = environ.get(VARIABLE, "")
    if asked and asked not in NAMES:
        raise ConfigError(f"{VARIABLE}={asked!r}; choose one of {', '.join(NAMES)}")
    return asked


def is_compiled_form(module: ModuleType) -> bool:
    """Return whether a module of kernels is the compiled one."""
    return str(module.__file__).endswith(tuple(EXTENSION_SUFFIXES))


@lru_cache(maxsize=8)
def plain_form(module: ModuleType) -> ModuleType:
    """Return a kernel module as plain Python: itself, or its source beside the compiled form."""
    if not is_compiled_form(module):
        return module
    package, _, stem = module.__name__.rpartition(".")
    source = path.join(path.dirname(str(module.__file__)), f"{stem}.py")
    spec = spec_from_loader(f"{package}._plain_{stem}", SourceFileLoader(f"{package}._plain_{stem}", source))
    assert spec is not None and spec.loader is not None
    plain = module_from_spec(spec)
    spec.loader.exec_module(plain)
    return plain


def not_compiled() -> ConfigError:
    """Build the error for KOHORT_KERNELS=c without compiled kernels."""
    return ConfigError(f"{VARIABLE}=c, but the kernels are not compiled: {_REMEDY}")


def tell_kernels(package: str = path.dirname(path.dirname(__file__))) -> str:
    """Describe the form of the kernels: compiled, or plain Python with its cost and the remedy.

    Args:
        package: folder in which the modules lie.
    """
    if environ.get(VARIABLE) in ("numpy", "python"):
        return f"{_SLOWER}: {VARIABLE}={environ[VARIABLE]} asks for it"
    is_compiled = all(
        any(path.exists(path.join(package, f"{name}{suffix}")) for suffix in EXTENSION_SUFFIXES) for name in MODULES
    )
    return "compiled" if is_compiled else f"{_SLOWER}: {_REMEDY}"


@lru_cache(maxsize=1)
def log_kernels() -> None:
    """Write the form of the kernels to the log, once a process: a warning where they are plain Python."""
    # The import of this module must load no threads, which logging does.
    import logging

    told = tell_kernels()
    level = logging.INFO if told == "compiled" else logging.WARNING
    logging.getLogger("kohort.kernels").log(level, "kernels: %s", told)
