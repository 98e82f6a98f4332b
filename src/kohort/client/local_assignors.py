"""The assignors that a consumer runs for its group, and the attributes that they may have.

Any assignor of `kohort.assign.interface` can be used, the same object that a broker accepts. `name` and `assign` are
required. `LocalAssignor` reads the optional attributes (with their defaults):

- `minimum_version` and `maximum_version` (0): versions of metadata that it understands;
- `metadata_version` (the highest): version of its own metadata;
- `metadata()` (empty): this member's metadata, for the member that computes the assignment;
- `tell(group, owner)` (none): metadata for each member, returned by the assignor that computes;
- `on_assignment(error, version, metadata)`: called with the metadata attached to this member's assignment.

Source: KIP-848 as drafted (`group.local.assignors`, `PartitionAssignor`).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from kohort.assign.interface import Assignable, Assignor


#: Most assignors of one member, and most bytes of their metadata: a coordinator takes no more.
MOST_ASSIGNORS: Final = 16
MOST_METADATA_BYTES: Final = 64 * 1024
_HIGHEST_VERSION: Final = 2**15 - 1


class LocalAssignor(NamedTuple):
    """An assignor of a consumer; `version` is that of its metadata, within `minimum_version` and `maximum_version`."""

    name: str
    minimum_version: int
    maximum_version: int
    version: int
    assignor: Assignor

    def metadata(self) -> bytes:
        """Return this member's present metadata, for the member that computes the assignment.

        Raises:
            TypeError: the application's function returns something other than bytes.
        """
        given = _optional(self.assignor, "metadata", lambda: b"")()
        return _checked_bytes(given, f"metadata() of the assignor {self.name}")

    def assign(self, group: Assignable) -> tuple[array[int], dict[str, bytes]]:
        """Compute the new owners and the metadata for members; errors of the application's code are raised."""
        owner = self.assignor.assign(group)
        told: Mapping[str, bytes] = _optional(self.assignor, "tell", lambda *_: {})(group, owner)
        what = f"tell() of the assignor {self.name}"
        return owner, {member_id: _checked_bytes(given, what) for member_id, given in told.items()}

    def on_assignment(self, error: int, version: int, metadata: bytes) -> object:
        """Pass the metadata attached to an assignment to the application."""
        return _optional(self.assignor, "on_assignment", lambda *_: None)(error, version, metadata)


def parse_assignors(given: object) -> tuple[LocalAssignor, ...]:
    """Read the option group.local.assignors: one assignor, or several in the order of preference.

    Raises:
        ValueError: an object is not a usable assignor; the message says what is expected.
    """
    several: Sequence[object] = given if isinstance(given, list | tuple) else [given]
    found = tuple(_read(each) for each in several)
    names = [each.name for each in found]
    if len(set(names)) < len(names):
        raise ValueError(f"two of them are called {next(name for name in names if names.count(name) > 1)}")
    if len(found) > MOST_ASSIGNORS:
        raise ValueError(f"{len(found)} assignors are given; at most {MOST_ASSIGNORS} are possible")
    return found


def _read(assignor: Any) -> LocalAssignor:
    name = getattr(assignor, "name", None)
    if isinstance(assignor, type) or not isinstance(name, str) or not callable(getattr(assignor, "assign", None)):
        raise ValueError(
            f"{assignor!r} is no assignor: an object with a name and a method assign(group) is expected "
            "(kohort.assign.interface.Assignor)"
        )
    if not name:
        raise ValueError(f"the name of {assignor!r} is empty")
    low = _version(assignor, "minimum_version", 0)
    high = _version(assignor, "maximum_version", low)
    version = _version(assignor, "metadata_version", high)
    if not low <= version <= high:
        raise ValueError(
            f"the assignor {name} has metadata_version {version}, and minimum_version {low} and maximum_version {high} "
            "do not allow that"
        )
    return LocalAssignor(name, low, high, version, assignor)


def _version(assignor: object, attribute: str, default: int) -> int:
    found = getattr(assignor, attribute, default)
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= _HIGHEST_VERSION:
        raise ValueError(f"{attribute} of {assignor!r} is {found!r}; 0 to {_HIGHEST_VERSION} is expected")
    return found


def _optional(assignor: object, attribute: str, default: Callable[..., Any]) -> Callable[..., Any]:
    found = getattr(assignor, attribute, None)
    return found if callable(found) else default


def _checked_bytes(given: object, what: str) -> bytes:
    if not isinstance(given, bytes | bytearray | memoryview):
        raise TypeError(f"{what} gave {type(given).__name__}; bytes are expected")
    told = bytes(given)
    if len(told) > MOST_METADATA_BYTES:
        raise ValueError(f"{what} gave {len(told)} bytes; at most {MOST_METADATA_BYTES} are possible")
    return told
