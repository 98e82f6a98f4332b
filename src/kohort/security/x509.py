"""The parser of X.509 certificates in DER: their subject, their issuer, their key.

Python's ssl module returns a subject without the types of its values, which Java's names show, and no key.

Laws: each length is compared with the remaining bytes; anything that is not a certificate raises `ValueError`.
Source: RFC 5280, section 4.1 (certificate); RFC 2253 (names as text) as Java's `X500Principal.getName()` writes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_OID: Final = 0x06
#: The version of a certificate, which stands before its number; one of version 1 has none.
_VERSION: Final = 0xA0
#: A tag with these low bits continues in further bytes; certificates have no such tag.
_LONG_TAG: Final = 0x1F

#: The attributes for which RFC 2253 has a keyword.
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
#: The tags of texts. Java reads all of them as UTF-8, that of two bytes a character (0x1E), too.
_WIDE_TEXT: Final = 0x1E
_TEXTS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, _WIDE_TEXT})
#: Characters that are written with a backslash.
_ESCAPED: Final = frozenset(',=+<>#;"\\')
#: Characters that are written with a backslash at either end of a value.
_BLANKS: Final = " \r"


@dataclass(frozen=True, slots=True)
class Certificate:
    """The parts of one certificate, each in DER."""

    issuer: bytes
    subject: bytes
    #: The public key with its algorithm.
    key: bytes

    @property
    def identity(self) -> tuple[bytes, bytes]:
        """The name and the key; a renewed certificate of the same key has the same ones."""
        return self.subject, self.key


def parse_certificate(der: bytes) -> Certificate:
    """Parse a certificate.

    Raises:
        ValueError: the bytes are no certificate.
    """
    signed = _only(der, _SEQUENCE)
    fields = list(_elements(_first(signed, _SEQUENCE)))
    if fields and fields[0][0] == _VERSION:
        del fields[0]
    # Number, signature's algorithm, issuer, validity, subject, key; extensions may follow.
    if len(fields) < 6:
        raise ValueError("a certificate that ends too early")
    return Certificate(issuer=fields[2][2], subject=fields[4][2], key=fields[5][2])


def distinguished_name(name: bytes, *, is_exact: bool = False) -> str:
    """Return a name in DER as text, the last part first, as Java writes it by RFC 2253.

    `is_exact`: refuse values that are not UTF-8, for which Java writes a text that another name may have, too.

    Raises:
        ValueError: the bytes are no name, or have no exact text.
    """
    parts = []
    for tag, content, _ in _elements(_only(name, _SEQUENCE)):
        if tag != _SET:
            raise ValueError("a name with something else than sets")
        parts.append("+".join(_attribute(whole, is_exact=is_exact) for _, _, whole in _elements(content)))
    return ",".join(reversed(parts))


def _attribute(pair: bytes, *, is_exact: bool) -> str:
    elements = list(_elements(_only(pair, _SEQUENCE)))
    if len(elements) != 2 or elements[0][0] != _OID:
        raise ValueError("an attribute that is not a type and a value")
    kind = _dotted(elements[0][1])
    tag, content, whole = elements[1]
    keyword = _KEYWORDS.get(kind)
    if keyword is None or tag not in _TEXTS:
        # A value of an unknown type is shown as bytes.
        return f"{keyword or kind}=#{whole.hex()}"
    # Java puts the sign of a lost character in place of bytes that are no text. By two bytes a character another
    # name is spelled than the one that the authority has seen: U+6F70 U+7300 would be `ops`.
    if is_exact and tag == _WIDE_TEXT:
        raise ValueError("a name with two bytes a character (BMPString)")
    return f"{keyword}={_escape(content.decode('utf-8', 'strict' if is_exact else 'replace'))}"


def _escape(value: str) -> str:
    lead = len(value) - len(value.lstrip(_BLANKS))
    trail = len(value.rstrip(_BLANKS))
    written = []
    for at, each in enumerate(value):
        if each == "\0":
            written.append("\\00")
        elif each in _ESCAPED or at < lead or at >= trail:
            written.append(f"\\{each}")
        else:
            written.append(each)
    return "".join(written)


def _dotted(content: bytes) -> str:
    """Return an object identifier as numbers with dots."""
    numbers, number = [], 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers or content[-1] & 0x80:
        raise ValueError("an object identifier that ends too early")
    # The first two are in one number: the first is 0, 1 or 2, the second below 40 for the first two of these.
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _only(der: bytes, tag: int) -> bytes:
    """Return the content of `der`, which must be one element with this tag."""
    content = _first(der, tag)
    if len(list(_elements(der))) != 1:
        raise ValueError("bytes behind the end")
    return content


def _first(der: bytes, tag: int) -> bytes:
    for found, content, _ in _elements(der):
        if found == tag:
            return content
        break
    raise ValueError("not the expected element")


def _elements(der: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield tag, content and the whole of each element."""
    at = 0
    while at < len(der):
        if len(der) - at < 2 or der[at] & _LONG_TAG == _LONG_TAG:
            raise ValueError("not an element")
        begin, size = at + 2, der[at + 1]
        if size & 0x80:
            # Four bytes of length are more than any certificate has.
            count = size & 0x7F
            if not 1 <= count <= 4 or len(der) - begin < count:
                raise ValueError("not a length")
            size = int.from_bytes(der[begin : begin + count], "big")
            begin += count
        end = begin + size
        if end > len(der):
            raise ValueError("an element that ends too early")
        yield der[at], der[begin:end], der[at:end]
        at = end
