"""Broker options from a file: Kafka's server.properties, or TOML.

Laws: only the syntax of the file is parsed here; names and values are checked by `fileoptions`.
Source: java.util.Properties (comments, separators, continued lines, escapes in values); TOML 1.0 with dotted or
nested keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kohort.errors import ConfigError

#: An escape in a value, such as the line ends of a PEM key in one line.
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROLS: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
#: The longest configuration file; a longer file is given by mistake.
FILE_LIMIT_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A configuration file: options by dotted name in file order, with their lines (not in TOML)."""

    path: str
    values: dict[str, object]
    lines: dict[str, int] = field(default_factory=dict)

    def place_of(self, name: str) -> str:
        """Return FILE:LINE of an option, or FILE if its line is not known."""
        return f"{self.path}:{self.lines[name]}" if name in self.lines else self.path


def load_config_file(path: str) -> ConfigFile:
    """Read options by dotted name: a name that ends in .toml as TOML, anything else as properties.

    Raises `ConfigError` that names the file and, where there is one, the line.
    """
    try:
        with Path(path).open("rb") as file:
            raw = file.read(FILE_LIMIT_BYTES + 1)
    except OSError as why:
        raise ConfigError(f"configuration file {path} cannot be read: {why.strerror}") from None
    if len(raw) > FILE_LIMIT_BYTES:
        raise ConfigError(f"configuration file {path} is longer than {FILE_LIMIT_BYTES} bytes")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"configuration file {path} is not UTF-8 text") from None
    return _parse_toml(text, path) if path.endswith(".toml") else _parse_properties(text, path)


def _parse_toml(text: str, path: str) -> ConfigFile:
    import tomllib

    try:
        return ConfigFile(path, dict(_flatten(tomllib.loads(text))))
    except tomllib.TOMLDecodeError as why:
        raise ConfigError(f"configuration file {path} is not valid TOML: {why}") from None


def _flatten(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _parse_properties(text: str, path: str) -> ConfigFile:
    file = ConfigFile(path, {})
    pending = ""
    begins = 0
    for number, raw_line in enumerate(text.splitlines(), start=1):
        begins = begins if pending else number
        line = pending + raw_line.strip()
        pending = ""
        if not line or line[0] in "#!":
            continue
        # Only an odd number of backslashes continues the line: of two the first escapes the second.
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = line[:-1]
            continue
        name, separator, value = _split_property(line)
        if not separator:
            raise ConfigError(f"configuration file {path}, line {number}: NAME=VALUE is expected")
        file.values[name] = value
        file.lines[name] = begins
    return file


def _split_property(line: str) -> tuple[str, str, str]:
    """Split a line into name, separator and value at its first = or :."""
    positions = [position for position in (line.find("="), line.find(":")) if position >= 0]
    if not positions:
        return line, "", ""
    cut = min(positions)
    return line[:cut].strip(), line[cut], _ESCAPE.sub(_unescaped, line[cut + 1 :].strip())


def _unescaped(found: re.Match[str]) -> str:
    """Return the character of an escape in Java's properties; of an unknown escape the second character."""
    code = found[1]
    return chr(int(code[1:], 16)) if len(code) == 5 else _CONTROLS.get(code, code)
