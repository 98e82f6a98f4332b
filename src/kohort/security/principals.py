"""The principals of clients with certificates: rules that map a certificate's name to a user's name.

Laws: a certificate that no rule matches has no principal, and its client is refused; so is one whose name is not in
UTF-8 or has control characters, which would write lines of their own into logs and lists. The broker's administrator
writes the patterns, the certificate authority the names: with google-re2 any pattern takes linear time, without it
names of more than `LONGEST_NAME` characters are refused.
Source: Apache Kafka's `ssl.principal.mapping.rules` (KIP-371), `SslPrincipalMapper`; Java's `Matcher.replaceAll`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from kohort.errors import ConfigError
from kohort.security.x509 import distinguished_name, parse_certificate

OPTION: Final = "ssl.principal.mapping.rules"
#: The longest name that is matched with Python's own patterns.
LONGEST_NAME: Final = 1_024
#: Categories of Unicode: control, format, lone surrogates, private and unassigned characters; ends of lines.
_UNPRINTABLE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})

_RULE: Final = r"(DEFAULT)|RULE:((\\.|[^\\/])*)/((\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_PARSER: Final = re.compile(_RULE)
_SPLITTER: Final = re.compile(rf"\s*({_RULE})\s*(,\s*|$)")
#: Java's syntax of a named group, which differs from Python's.
_NAMED_GROUP: Final = re.compile(r"\(\?<(?![=!])")


class NoPrincipalError(ValueError):
    """A certificate has a name that no rule matches, or that no user may have."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """One rule; a pattern of `None` stands for DEFAULT, which keeps the name as it is."""

    pattern: Any = None
    #: Texts and numbers of groups.
    replacement: Sequence[str | int] = ()
    change_case: Callable[[str], str] = str

    def apply(self, name: str) -> str | None:
        """Return the user's name; `None` if the rule does not match."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        # Each match is replaced, as in Kafka: a pattern may match its whole name and, once more, its empty end.
        return self.change_case(self.pattern.sub(self._replace, name))

    def _replace(self, match: Any) -> str:
        return "".join(part if isinstance(part, str) else match.group(part) or "" for part in self.replacement)


class MappingRules:
    """The rules of one listener, in order."""

    def __init__(self, text: str = "DEFAULT") -> None:
        """Parse the rules.

        Raises:
            ConfigError: a rule cannot be parsed.
        """
        self._rules: Final = [_parse(each[1]) for each in _SPLITTER.finditer(text.strip()) if each[1]]

    def principal(self, certificate: bytes) -> str:
        """Return the principal of a certificate in DER, as `User:NAME`.

        Raises:
            NoPrincipalError: no rule matches the certificate's name, or the name is one that no user may have.
            ValueError: the bytes are no certificate.
        """
        try:
            name = distinguished_name(parse_certificate(certificate).subject, is_exact=True)
        except UnicodeDecodeError:
            raise NoPrincipalError("a certificate for a name that is not in UTF-8") from None
        user = self.user(name)
        # Spaces of other scripts are allowed; characters that end a line or change the direction of text are not.
        if any(unicodedata.category(each) in _UNPRINTABLE for each in user):
            raise NoPrincipalError(f"a certificate for {user[:LONGEST_NAME]!r}, which has control characters")
        return f"User:{user}"

    def user(self, name: str) -> str:
        """Return the user's name for a distinguished name, by the first rule that matches.

        Raises:
            NoPrincipalError: no rule matches.
        """
        for rule in self._rules:
            if isinstance(rule.pattern, re.Pattern) and len(name) > LONGEST_NAME:
                raise NoPrincipalError(f"a certificate for a name of {len(name)} characters; google-re2 is needed")
            user = rule.apply(name)
            if user is not None:
                return user
        raise NoPrincipalError(f"a certificate for {name[:LONGEST_NAME]!r}, which no rule of {OPTION} is for")


def _parse(text: str) -> _Rule:
    match = _PARSER.match(text)
    if match is None or match.end() != len(text):
        raise _wrong(text, "DEFAULT or RULE:PATTERN/REPLACEMENT/, then L, U or nothing, is expected")
    if match[1] is not None:
        return _Rule()
    try:
        pattern = _compile(match[2])
    except re.error as error:
        raise _wrong(text, f"the pattern: {error}") from None
    replacement = _parse_replacement(match[4], pattern.groups, partial(_wrong, text))
    change_case: dict[str, Callable[[str], str]] = {"": str, "L": str.lower, "U": str.upper}
    return _Rule(pattern, replacement, change_case[match[6]])


def _wrong(rule: str, why: str) -> ConfigError:
    return ConfigError(f"{OPTION}: {rule!r} cannot be read: {why}")


def _compile(text: str) -> Any:
    """Compile a pattern by RE2 if that is installed and supports it, else by Python's `re`."""
    text = _NAMED_GROUP.sub("(?P<", text)
    try:
        import re2
    except ImportError:
        return re.compile(text)
    options = re2.Options()
    # RE2 would write errors to stderr.
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except (re2.error, UnicodeEncodeError):
        # RE2 has no look-ahead, which Java and Python have.
        return re.compile(text)


def _parse_replacement(text: str, groups: int, wrong: Callable[[str], ConfigError]) -> list[str | int]:
    """Return the texts and the numbers of groups in a replacement, as Java understands it.

    >>> _parse_replacement("$1@$23", 2, ConfigError)
    [1, '@', 2, '3']
    >>> _parse_replacement(r"\\$1$9", 2, ConfigError)
    ['$', '1', '$9']
    """
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        each = text[at]
        at += 1
        if each == "\\":
            if at == len(text):
                raise wrong("the replacement ends in a backslash")
            parts.append(text[at])
            at += 1
        elif each == "$":
            digits = re.compile("[0-9]+").match(text, at)
            if digits is None:
                raise wrong("a $ in the replacement needs the number of a group, or a backslash before it")
            # The longest number that names a group; Kafka treats a number above all groups as text.
            end = at + 1
            while end < digits.end() and int(text[at : end + 1]) <= groups:
                end += 1
            number = int(text[at:end])
            if number > groups and not groups:
                raise wrong(f"the replacement has ${number}, and the pattern no group")
            parts.append(number if number <= groups else f"${number}")
            at = end
        else:
            parts.append(each)
    return parts
