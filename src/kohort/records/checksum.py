"""CRC-32C, which guards every record batch.

Laws: loading this module loads the compiled function and nothing else. The package `crc32c` imports the standard
library's package metadata on its way, which takes longer than all of a broker's own start.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Final, Protocol


class Checksum(Protocol):
    """A function that computes the checksum of a buffer, or continues that of the bytes before it."""

    def __call__(self, data: bytes | bytearray | memoryview, before: int = 0, /) -> int: ...


def _load() -> Checksum:
    """Load the function from its extension module, or through the package if that is laid out otherwise."""
    package = PathFinder.find_spec("crc32c")
    spec = None
    if package is not None and package.submodule_search_locations is not None:
        spec = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        function: Checksum | None = getattr(module, "crc32c", None)
        if function is not None:
            return function
    from crc32c import crc32c as packaged

    found: Checksum = packaged
    return found


#: The CRC-32C of a buffer.
crc32c: Final = _load()
