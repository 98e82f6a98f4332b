"""Names of certificates and of the users that rules make of them, as Apache Kafka has them."""

from __future__ import annotations

import datetime
import random
import sys
from collections.abc import Sequence
from functools import cache

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import NameAttribute, ObjectIdentifier
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from kohort.errors import ConfigError
from kohort.security.principals import LONGEST_NAME, MappingRules, NoPrincipalError
from kohort.security.x509 import distinguished_name, parse_certificate

#: Those of the documentation of Kafka, and one for names that are left.
RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, "
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U, "
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, "
    "DEFAULT"
)


@pytest.fixture(params=["re2", "re"], autouse=True)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Rules mean the same with google-re2 and without."""
    kind: str = request.param
    if kind == "re":
        monkeypatch.setitem(sys.modules, "re2", None)
    return kind


@cache
def key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def certificate(*parts: NameAttribute | Sequence[NameAttribute]) -> bytes:
    """One for a name of these parts, each one attribute or several, in DER."""
    rdns = [x509.RelativeDistinguishedName([part] if isinstance(part, NameAttribute) else part) for part in parts]
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(x509.Name(rdns)).issuer_name(x509.Name(rdns))
    builder = builder.public_key(key().public_key()).serial_number(5).not_valid_before(now)
    signed = builder.not_valid_after(now + datetime.timedelta(days=1)).sign(key(), hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.DER)


def name_of(der: bytes) -> str:
    return distinguished_name(parse_certificate(der).subject)


def cn(text: str, kind: _ASN1Type | None = None) -> NameAttribute:
    return NameAttribute(NameOID.COMMON_NAME, text, _type=kind)


#: Parts of a name -> how Java 21 writes it (`X500Principal.getName()`).
JAVAS_NAMES = [
    (
        [NameAttribute(NameOID.COUNTRY_NAME, "DE"), NameAttribute(NameOID.ORGANIZATION_NAME, "Org, Inc."), cn("Duke")],
        r"CN=Duke,O=Org\, Inc.,C=DE",
    ),
    ([cn(' #a=b+c;d<e>"f\\g ')], r"CN=\ \#a\=b\+c\;d\<e\>\"f\\g" + "\\ "),
    (
        [cn("  x  "), NameAttribute(NameOID.STREET_ADDRESS, "1 road"), NameAttribute(NameOID.LOCALITY_NAME, "F")],
        r"L=F,STREET=1 road,CN=\ \ x\ " + "\\ ",
    ),
    (
        [
            [cn("a"), NameAttribute(NameOID.USER_ID, "u1")],
            NameAttribute(NameOID.DOMAIN_COMPONENT, "org"),
            NameAttribute(NameOID.DOMAIN_COMPONENT, "example", _type=_ASN1Type.IA5String),
        ],
        "DC=example,DC=org,CN=a+UID=u1",
    ),
    (
        [
            NameAttribute(NameOID.EMAIL_ADDRESS, "a@b"),
            NameAttribute(NameOID.EMAIL_ADDRESS, "a@b", _type=_ASN1Type.UTF8String),
            NameAttribute(NameOID.SERIAL_NUMBER, "5"),
            NameAttribute(ObjectIdentifier("1.2.3.4.99999"), "z"),
            NameAttribute(ObjectIdentifier("2.999.1"), "z"),
        ],
        "2.999.1=#0c017a,1.2.3.4.99999=#0c017a,2.5.4.5=#130135,1.2.840.113549.1.9.1=#0c03614062,"
        "1.2.840.113549.1.9.1=#1603614062",
    ),
    ([cn("Jürgen Łódź 日本 🎉")], "CN=Jürgen Łódź 日本 🎉"),
    ([cn("tab\tnl\nnul\0end\r")], "CN=tab\tnl\nnul\\00end\\\r"),
    ([cn("   ")], "CN=\\ \\ \\ "),
    ([cn("uni", _ASN1Type.UniversalString)], "CN=#1c0c000000750000006e00000069"),
    ([cn("é", _ASN1Type.T61String), cn("é日", _ASN1Type.BMPString)], "CN=\\00�e�,CN=é"),
    ([cn("CN=a/b'c*d@e_f")], "CN=CN\\=a/b'c*d@e_f"),
    ([], ""),
]


@pytest.mark.parametrize(("parts", "written"), JAVAS_NAMES, ids=range(len(JAVAS_NAMES)))
def test_names_are_written_as_java_writes_them(
    parts: Sequence[NameAttribute | Sequence[NameAttribute]], written: str
) -> None:
    assert name_of(certificate(*parts)) == written


def test_principal_is_the_name_by_default() -> None:
    der = certificate(NameAttribute(NameOID.ORGANIZATION_NAME, "Org"), cn("alice"))
    assert MappingRules().principal(der) == "User:CN=alice,O=Org"
    assert MappingRules("RULE:^CN=(.*?),.*$/$1/U").principal(der) == "User:ALICE"


@pytest.mark.parametrize(
    ("name", "user"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_first_rule_that_matches_makes_the_user(name: str, user: str) -> None:
    """KIP-371."""
    assert MappingRules(RULES).user(name) == user


@pytest.mark.parametrize(
    ("rules", "name", "user"),
    [
        (r"RULE:^CN=((\\, *|\w)+)(,.*|$)/$1/,DEFAULT", r"CN=Tkac\, Adam,OU=ITZ,DC=geodis,DC=cz", r"Tkac\, Adam"),
        # The empty end of the name matches once more, and is replaced as well.
        ("RULE:.*/foo/", "CN=x", "foofoo"),
        ("RULE:^(CN)=(.*)$/$2-$1$0/", "CN=x", "x-CNCN=x"),
        # Kafka takes the digits that name a group; a group that is not there is text.
        ("RULE:^(CN)=(.*)$/$23$9/", "CN=x", "x3$9"),
        (r"RULE:^CN=(.*)$/\$1\/$1/", "CN=x", "$1/x"),
        ("RULE:^CN=(?<who>a)?(.*)$/<$1>$2/", "CN=x", "<>x"),
        ("  RULE:  /     /U   ,DEFAULT  ", "CN=x", "CN=x"),
        (",,RULE:^CN=(x)$/$1/,,,DEFAULT,,", "CN=x", "x"),
        (r"RULE:^CN=(a\/b)$/$1/", "CN=a/b", "a/b"),
        ("RULE:^CN=([^,ADEFLTU,]+)(,.*|$)/$1/", "CN=kohort,O=x", "kohort"),
    ],
)
def test_rules_are_read_as_kafka_reads_them(rules: str, name: str, user: str) -> None:
    assert MappingRules(rules).user(name) == user


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "DEFAUL",
        "DEFAULT/L",
        "DEFAULT/U",
        "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
        "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/L",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/LU",
        # Java refuses these when the first client comes.
        "RULE:^CN=(.*$/x/",
        "RULE:^CN=.*$/$1/",
        "RULE:^CN=(.*)$/$x/",
        "RULE:^CN=(.*)$/5$/",
    ],
)
def test_rules_that_cannot_be_read_are_refused_at_the_start(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        MappingRules(rules)


@pytest.mark.parametrize("rules", ["", "RULE:^CN=bob$/bob/", "RULE:^CN=ali$/ali/"])
def test_certificate_without_a_rule_has_no_principal(rules: str) -> None:
    """`matches` wants the whole name."""
    with pytest.raises(NoPrincipalError, match="alice"):
        MappingRules(rules).user("CN=alice")


def test_long_names_are_for_re2_alone(engine: str) -> None:
    """Any pattern takes linear time there."""
    rules = MappingRules("RULE:^(a+)+$/x/,DEFAULT")
    name = "a" * LONGEST_NAME + "!"
    if engine == "re2":
        assert rules.user(name) == name
    else:
        with pytest.raises(NoPrincipalError, match="google-re2"):
            rules.user(name)


def test_bytes_that_are_no_certificate_are_an_error_and_nothing_else() -> None:
    """Cut, and changed in one place, and in many."""
    whole = certificate([cn("a"), NameAttribute(NameOID.USER_ID, "u1")], NameAttribute(NameOID.EMAIL_ADDRESS, "a@b"))
    dice = random.Random(24)
    tried = [whole[:end] for end in range(len(whole))]
    for _ in range(3_000):
        changed = bytearray(whole)
        for _ in range(dice.choice([1, 1, 3])):
            changed[dice.randrange(len(changed))] = dice.randrange(256)
        tried.append(bytes(changed))
    read = 0
    for der in tried:
        try:
            read += bool(name_of(der))
        except ValueError:
            continue
    assert 0 < read < len(tried)
    for none in (
        b"",
        b"0",
        b"0\x80",
        b"\x1f\x03abc",
        b"\x30\x84\xff\xff\xff\xff",
        b"\x30\x85\1\1\1\1\1",
        whole + b"\0\0",
    ):
        with pytest.raises(ValueError, match=r"."):
            parse_certificate(none)


@pytest.mark.parametrize("name", ["a\nevent=logged_in", "a\x1b[2J", "\u202eecila", "a\u2028b", "a\x7f"])
def test_name_that_would_write_into_logs_is_nobodys(name: str) -> None:
    """As of a user of SASL, whose name is printable."""
    with pytest.raises(NoPrincipalError, match="control characters") as refused:
        MappingRules().principal(certificate(cn(name)))
    assert str(refused.value).isprintable()


def test_name_with_a_blank_of_another_script_is_a_users() -> None:
    assert MappingRules().principal(certificate(cn("\u65e5\u672c\u3000\u4f8b"))) == "User:CN=\u65e5\u672c\u3000\u4f8b"


def test_name_that_could_be_read_as_another_is_nobodys() -> None:
    """Java reads both as UTF-8: the first is `ops` then, and all of the second kind are one name."""
    with pytest.raises(ValueError, match="BMPString"):
        MappingRules().principal(certificate(cn("\u6f70\u7320", _ASN1Type.BMPString)))
    with pytest.raises(NoPrincipalError, match="not in UTF-8"):
        MappingRules().principal(certificate(cn("Jos#", _ASN1Type.T61String)).replace(b"Jos#", b"Jos\xe9"))
