"""What the site of docs/ has from the code: tables that are made, and the files outside of docs/ that pages link to.

A page names a table by `<!-- made: SECTION -->`; `SECTIONS` says which page has which, and what makes it. `make docs`
builds the site with this module as a hook of MkDocs. `python tools/docs.py SECTION` prints one table.
"""

from __future__ import annotations

import ast
import inspect
import json
import posixpath
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Final

from kohort.base.options import Option, OptionSet, Verdict, as_text, parse_bool, parse_float, parse_int, parse_list

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PUBLISHED = ROOT / "bench" / "published.json"
MARK = re.compile(r"<!-- made: ([^>]+) -->")
Rows = Iterable[Sequence[str]]


def table(head: Sequence[str], rows: Rows) -> list[str]:
    """The lines of a Markdown table."""
    return ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows)]


def quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


# -- states -------------------------------------------------------------------------------------------------------


def _transitions(transitions: Mapping[tuple[str, str], str]) -> list[str]:
    """A row a step; a state is named in its first row only."""
    rows, order, shown = [], list(dict.fromkeys(before for before, _ in transitions)), ""
    for before, after in sorted(transitions, key=lambda step: order.index(step[0])):
        rows.append(("" if before == shown else before, after, transitions[before, after]))
        shown = before
    return table(("from", "to", "when"), rows)


def classic_group_states() -> list[str]:
    from kohort.coordinator.classic.state import TRANSITIONS

    return _transitions({(before.value, after.value): why for (before, after), why in TRANSITIONS.items()})


def consumer_group_states() -> list[str]:
    from kohort.coordinator.consumer.describe import GROUP_TRANSITIONS

    return _transitions(GROUP_TRANSITIONS)


def consumer_member_states() -> list[str]:
    from kohort.coordinator.consumer.describe import MEMBER_TRANSITIONS

    return _transitions(MEMBER_TRANSITIONS)


def transaction_states() -> list[str]:
    """A row for each event, with its outcome in each state."""
    from kohort.coordinator.transactions.states import table_rows

    head, *rows = table_rows()
    return table(head, rows)


def producer_states() -> list[str]:
    """A row for each call and each happening, with the producer's next state in each state."""
    from kohort.client.producer.core.producer_events import TransactionStep
    from kohort.client.producer.core.transactions import TRANSITIONS, Happening, TransactionState

    states = list(TransactionState)
    rows = []
    for event in (*TransactionStep, *Happening):
        name = f"`{event.value}`" if isinstance(event, TransactionStep) else event.value
        found = (TRANSITIONS.get((state, event)) for state in states)
        rows.append((name, *("" if after is None else after.value for after in found)))
    return table(("call, or what happens", *(state.value for state in states)), rows)


def _meanings(kind: type[Enum]) -> dict[str, str]:
    """Name of a value -> the `#:` lines above it."""
    found = re.findall(r"((?: {4}#: .*\n)+) {4}(\w+) = ", inspect.getsource(kind))
    return {name: " ".join(line.strip().removeprefix("#: ") for line in lines.splitlines()) for lines, name in found}


def client_states() -> list[str]:
    """What each state of the client's member means."""
    from kohort.client.consumer.membership.states import MemberState

    told = _meanings(MemberState)
    return table(("state", "meaning"), [(each.name, told[each.name]) for each in MemberState])


def client_steps() -> list[str]:
    """Which step leads where; what any active state does alike is one row."""
    from kohort.client.consumer.membership.states import ACTIVE, TRANSITIONS, MemberState

    shared = {
        (step, target)
        for step in {step for _, step in TRANSITIONS}
        for target in {TRANSITIONS.get((state, step)) for state in ACTIVE}
        if target is not None and all(TRANSITIONS.get((state, step)) is target for state in ACTIVE)
    }
    rows, shown = [], None
    for (state, step), target in sorted(TRANSITIONS.items(), key=lambda entry: list(MemberState).index(entry[0][0])):
        if state in ACTIVE and (step, target) in shared:
            continue
        rows.append(("" if state is shown else state.name, step.value, target.name))
        shown = state
    for step, target in sorted(shared, key=lambda entry: entry[0].value):
        rows.append(("any state of a member", step.value, target.name))
    return table(("from", "step", "to"), rows)


def client_events() -> list[str]:
    """The events of the threading refactor's design by our names."""
    from kohort.client.consumer import application_events as ours

    events = {
        "fetch": [ours.Chunk],
        "callback invocation": [ours.CallbackWanted],
        "acknowledgement": [ours.CallbackStarted, ours.CallbackDone],
        "error": [ours.Trouble],
        "poll": [ours.Polled],
        "commit": [ours.CommitAsked],
        "leave group": [ours.Unsubscribed, ours.CloseAsked],
    }
    told = [
        (name, kind, (inspect.getdoc(kind) or "").splitlines()[0]) for name, kinds in events.items() for kind in kinds
    ]
    rows = [(name, f"`{kind.__name__}`", said) for name, kind, said in told]
    return table(("event", "in `application_events.py`", "what it says"), rows)


def client_refusals() -> list[str]:
    """The calls that a callback may not make."""
    from kohort.client.consumer import context, reader, subscriptions

    code = "".join(inspect.getsource(module) for module in (context, reader, subscriptions))
    names = {*re.findall(r'\.begin_long\("(\w+)"\)', code), *re.findall(r'\._read\(\s*"(\w+)"', code), "close"}
    return [f"Refused in a callback: {quoted(sorted(names))}."]


# -- options and limits -------------------------------------------------------------------------------------------


def option_sets() -> tuple[tuple[str, str, OptionSet], ...]:
    """Heading, how the options are given, and the set that parses them."""
    from kohort.broker.options.settings import BROKER_OPTIONS
    from kohort.client.options import ADMIN_OPTIONS, CONSUMER_OPTIONS, PRODUCER_OPTIONS
    from kohort.spark.option_table import OPTIONS as SPARK_OPTIONS
    from kohort.spark.option_table import SINK_OPTIONS
    from kohort.storage.topicconfig import TOPIC_OPTIONS

    return (
        (
            "Broker",
            "`kohort up --config NAME=VALUE`, a server.properties or TOML file (`--config-file`), or "
            '`kohort.Broker(config={"num.partitions": 4})`.\n\n'
            "A file that was written for Apache Kafka may be given as it is. What it has and this broker has not is "
            "passed over, named in one line at the start. Listeners for controllers are left out; one on every "
            "address, as Apache Kafka's own file has it, needs a login and TLS, or `--allow-anonymous`. All that "
            "is wrong in it is told at once, with file and line. It is refused where going on would break a "
            "promise: Kerberos, delegation tokens, classes of Java, more copies than one, policies and config "
            "providers, or `process.roles` without `broker`.\n\n"
            "`listener.name.NAME.OPTION`, the listener in lower case, sets an option for one listener: all of `ssl.*`, "
            "`sasl.*`, `connections.max.reauth.ms`, `max.connections`, `max.connections.per.ip`, "
            "`max.connections.per.ip.overrides` and `max.connection.creation.rate`; those of SASL also for one "
            "mechanism, as `listener.name.NAME.plain.sasl.jaas.config`.",
            BROKER_OPTIONS,
        ),
        (
            "Topic",
            "`kohort topic create NAME --config NAME=VALUE`, or any tool of Kafka that creates or alters topics. Every "
            "config of Kafka is taken, kept and shown, and a value that Kafka would refuse is refused. One that "
            "changes nothing is said: by `kohort topic create` and `describe`, in the documentation that "
            "DescribeConfigs answers, and in a line of the broker's log. A value that *holds* asks for what "
            "happens anyway. Topics that are created by themselves have the broker's defaults: options of the "
            "broker where it has some, or else the ones below.",
            TOPIC_OPTIONS,
        ),
        (
            "Consumer",
            'In Python with underscores, `kohort.Consumer(group_id="billing")`, or as they are, '
            '`kohort.Consumer.from_config({"group.id": "billing"})`.',
            CONSUMER_OPTIONS,
        ),
        ("Producer", 'Likewise: `kohort.Producer(acks="all")`.', PRODUCER_OPTIONS),
        ("Admin", "Likewise: `kohort.Admin(request_timeout_ms=5000)`.", ADMIN_OPTIONS),
        (
            "Spark source",
            '`spark.read.format("kohort").option("subscribe", "orders")`; beside these every consumer option with '
            "`kafka.` in front, of which `kafka.bootstrap.servers` is needed and `kafka.group.id` makes a streaming "
            "query a member.",
            SPARK_OPTIONS,
        ),
        (
            "Spark sink",
            '`frame.write.format("kohort").mode("append").option("topic", "orders")`; beside these every producer '
            "option with `kafka.` in front, of which `kafka.bootstrap.servers` is needed.",
            SINK_OPTIONS,
        ),
    )


def _kind_of(option: Option) -> str:
    """What a value may be."""
    if option.choices:
        choices = ", ".join(map(str, option.choices))
        return f"list of {choices}" if isinstance(option.default, list) else choices
    if option.parse is parse_bool:
        return "true, false"
    if option.parse in (parse_int, parse_float):
        return _range_of(option)
    return "list" if option.parse is parse_list or isinstance(option.default, list) else "text"


def _range_of(option: Option) -> str:
    """The numbers that are allowed; the limits that come from the wire's number types are left out."""
    has_maximum = option.maximum is not None and option.maximum < 2**31 - 1
    if option.minimum is not None and has_maximum:
        return f"{option.minimum} to {option.maximum}" if option.minimum != option.maximum else f"{option.minimum}"
    if option.minimum is not None:
        return f"number from {option.minimum}"
    return f"number up to {option.maximum}" if has_maximum else "number"


def _default_of(option: Option) -> str:
    """The default as it would be written in a file."""
    return "" if option.default in (None, "", []) else f"`{as_text(option.default)}`"


def _effect_of(option: Option) -> str:
    """Whether it is acted on, and for which values that makes no difference."""
    if option.idle is None:
        return "yes"
    effect = option.idle.words
    return effect + "".join(f"; `{as_text(value)}` holds" for value in option.idle.unless if value != [])


def options_table(options: Iterable[Option]) -> list[str]:
    """A row each, by name; with a column on what is acted on, if not all is."""
    rows = sorted(options, key=lambda option: option.name)
    columns = {
        "option": [f"`{option.name}`" for option in rows],
        "values": [_kind_of(option) for option in rows],
        "default": [_default_of(option) for option in rows],
        "acted on": [_effect_of(option) for option in rows],
        "meaning": [option.doc for option in rows],
    }
    if all(option.idle is None for option in rows):
        del columns["acted on"]
    cells = zip(*columns.values(), strict=True)
    return table(list(columns), [[cell.replace("|", "\\|") for cell in row] for row in cells])


def options() -> list[str]:
    """A section for each set."""
    return [
        line
        for title, usage, each in option_sets()
        for line in (f"## {title}", "", usage, "", *options_table(each), "")
    ]


def limits() -> list[str]:
    from kohort.broker import limitstable

    return limitstable.table().splitlines()


def required_rights() -> list[str]:
    """A row for each right that an API needs; the API is named in its first row only."""
    from kohort.broker.access.required_rights import rows

    cells, shown = [], -1
    for row in rows():
        api = ("", "") if row.number == shown else (f"{row.number:,}", row.api)
        cells.append((*api, row.needs or "none", row.of, row.denied.replace("_", "\\_")))
        shown = row.number
    return table(("key", "API", "needs", "of", "when it is denied"), cells)


# -- other clients ------------------------------------------------------------------------------------------------


def spellings() -> list[str]:
    """Which names of others each option takes."""
    from kohort.client.options import ADMIN_OPTIONS

    rows = [(f"`{each.name}`", quoted(sorted(each.also))) for each in ADMIN_OPTIONS if each.also]
    return table(("option here", "also taken"), rows)


def renamed() -> list[str]:
    """What others call options that have another name here."""
    from kohort.client import kafkaoptions

    theirs: dict[str, set[str]] = {}
    for row in {*kafkaoptions.FOR_CONSUMERS, *kafkaoptions.FOR_PRODUCERS}:
        if row.verdict is Verdict.CALLED:
            theirs.setdefault(row.why, set()).update(row.names.split())
    in_bytes = {ours for ours, names in theirs.items() if any(name.endswith("kbytes") for name in names)}
    rows = [
        (quoted(sorted(names)), f"`{ours}`{', in bytes' if ours in in_bytes else ''}")
        for ours, names in sorted(theirs.items())
    ]
    return table(("theirs", "here"), rows)


def codes() -> list[str]:
    """Codes of the protocol that a library calls otherwise."""
    import aiokafka.errors
    import confluent_kafka
    import kafka.errors

    from kohort.errors import ErrorCode

    theirs: dict[int, set[str]] = {}
    for name in dir(confluent_kafka.KafkaError):
        if name.isupper() and not name.startswith("_"):
            theirs.setdefault(getattr(confluent_kafka.KafkaError, name), set()).add(name)
    for module in (kafka.errors, aiokafka.errors):
        for name, error in vars(module).items():
            if isinstance(getattr(error, "errno", None), int):
                theirs.setdefault(error.errno, set()).add(getattr(error, "message", name))
    ours = {code.value: code.name for code in ErrorCode}
    rows = [
        (str(number), ours[number], ", ".join(sorted(names - {ours[number]})))
        for number, names in sorted(theirs.items())
        if number in ours and names - {ours[number]}
    ]
    return table(("code", "here", "there"), rows)


# -- laws of the simulation ---------------------------------------------------------------------------------------


#: How a checker names the law that it finds broken.
_BROKEN = re.compile(
    r'LawBroken\(\s*"(\w+)"|\blaw = "(\w+)"|InvariantViolation\(\s*f?"(\w+):|_fail(?:_classic)?\(group, "(\w+)"'
)


def proofs() -> dict[str, list[str]]:
    """Name of a law -> the tests that prove it, as `FILE::TEST` below tests/, in the order of the files.

    A proof is a test with `assert law_that_finds(...) == "NAME OF THE LAW"`: worlds with that planted bug break this
    law and no other.
    """
    tests = ROOT / "tests"
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted((tests / "sim").glob("test_*.py")):
        if path.name.startswith(("test_client_", "test_query_", "test_transaction_")):
            continue  # Those worlds have laws of their own.
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for law in _laws_claimed_in(node):
                    found[law].append(f"{path.relative_to(tests).as_posix()}::{node.name}")
    return found


def _laws_claimed_in(test: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(test):
        match node:
            case ast.Compare(
                left=ast.Call(func=ast.Name("law_that_finds")), ops=[ast.Eq()], comparators=[ast.Constant(str(law))]
            ):
                yield law


def checking_files() -> dict[str, list[str]]:
    """Name of a law -> the files below src/kohort/ that find it broken, by the words with which they say so."""
    rooms = (ROOT / "src" / "kohort" / room for room in ("coordinator", "simulation"))
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(path for room in rooms for path in room.rglob("*.py")):
        if path.parent.name in ("clients", "queries", "transactions"):
            continue  # Those worlds have laws of their own.
        for name in sorted({name for names in _BROKEN.findall(path.read_text()) for name in names if name}):
            found[name].append(path.relative_to(ROOT / "src" / "kohort").as_posix())
    return found


def laws() -> list[str]:
    """A row for each law."""
    from kohort.simulation.checkers import LAWS

    proved, checked = proofs(), checking_files()
    rows = [(f"`{name}`", law, quoted(checked[name]), quoted(proved[name])) for name, law in LAWS.items()]
    return table(("law", "what has to hold", "checked by", "proved by"), rows)


# -- the published run of the benches -----------------------------------------------------------------------------

#: In the place of a table.
UNPUBLISHED = "Not published yet; `make bench` measures it."
_KILO, _MEGA = 1e3, 1e6
_TIMES, _DASH = "\N{MULTIPLICATION SIGN}", "\N{EN DASH}"
Document = Mapping[str, Mapping[str, Any]]


def published() -> Document:
    found: Document = json.loads(PUBLISHED.read_text())
    return found


def bench_run() -> list[str]:
    return run_of(published())


def run_of(results: Document) -> list[str]:
    """When and on what it was measured; more than one of a kind only where benches were measured apart."""
    entries = list(results.values())
    dates = sorted({entry["date"] for entry in entries})
    # Tables of one bench may have been measured one after the other.
    commits = sorted({commit for entry in entries for commit in entry["commit"].split(" and ")})
    machines = sorted({", ".join(_described(entry["machine"])) for entry in entries})
    minutes = sum(entry["seconds"] for entry in entries) / 60
    return [
        f"Measured on {' and '.join(dates)} at commit {' and '.join(commits)}, in {minutes:.0f} minutes: "
        f"{'; '.join(machines)}.",
        *sorted({sentence for entry in entries for each in entry["tables"] for sentence in each["left_out"]}),
    ]


def _described(machine: Mapping[str, str | int]) -> list[str]:
    """A machine in a few words."""
    words = dict(machine)
    return [f"{words.pop('cores')} cores", str(words.pop("system")), *(f"{name} {is_}" for name, is_ in words.items())]


def bench_table(results: Document, names: Sequence[str]) -> list[str]:
    """The rows of these tables of the benches, or how to measure one that is not published yet."""
    tables = {each["name"]: each for entry in results.values() for each in entry["tables"]}
    if not tables.keys() >= set(names):
        return [UNPUBLISHED]
    rows = [row for name in names for row in tables[name]["rows"]]
    head = ["what", "kohort", "peer", "peer is", "ratio", "reach", "runs", f"min{_DASH}max, kohort / peer"]
    # Settings and cores are columns where a row has any.
    has_settings, has_cores = any(row["settings"] for row in rows), any(row["cores"] for row in rows)
    head += ["not the default"] * has_settings + ["cores, kohort / peer (generator)"] * has_cores
    lines = []
    for row in rows:
        cells = [
            row["what"],
            figure(row["ours"], row["unit"]),
            "-" if row["peer"] is None else figure(row["peer"], row["unit"]),
            row["peer_name"],
            "-" if row["ratio"] is None else f"{three_digits(row['ratio'])}x",
            row["reach"],
            row["how"],
            spread(row),
            *([row["settings"] or "-"] if has_settings else []),
            *([cores(row["cores"])] if has_cores else []),
        ]
        lines.append([typeset(cell) for cell in cells])
    return table(head, lines)


def figure(value: float, unit: str) -> str:
    """A value with its unit, as a person reads it."""
    if unit in ("req/s", "rec/s", "rows/s"):
        if value >= _MEGA:
            return f"{value / _MEGA:.2f} M {unit}"
        return f"{value / _KILO:.1f} k {unit}" if value >= 10 * _KILO else f"{value:,.0f} {unit}"
    if unit == "us" and value >= 10 * _KILO:
        return f"{three_digits(value / _KILO)} ms"
    return f"{three_digits(value)} {unit}" if unit != "moves" else f"{value:,.0f}"


def three_digits(value: float) -> str:
    """At least three digits, and no more behind the point than that needs."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 or value == 0 else 3
    return f"{value:,.{digits}f}"


def spread(row: Mapping[str, Any]) -> str:
    """Least and most of both sides; nothing to say of a single run."""
    ranges = [one for one in (row["ours_range"], row["peer_range"]) if one]
    if all(low == high for low, high in ranges):
        return "-"
    unit = row["unit"]
    return " / ".join(
        f"{figure(low, unit).removesuffix(f' {unit}')}{_DASH}{figure(high, unit)}" for low, high in ranges
    )


def cores(shares: Sequence[float | None] | None) -> str:
    """Processors kept busy by each broker, and by the generator under each."""
    if not shares:
        return "-"
    ours, over_ours, peer, over_peer = shares
    pairs = ((ours, peer), (over_ours, over_peer))
    told = [" / ".join(f"{share:.2f}" for share in pair if share is not None) for pair in pairs]
    return f"{told[0]} ({told[1]})"


def typeset(cell: str) -> str:
    """What the benches write in ASCII, as a document has it."""
    cell = cell.replace(">= ", "≥ ").replace("<= ", "≤ ").replace(" x ", f" {_TIMES} ").replace(" us", " µs")
    return re.sub(r"(\d)x\b", rf"\1{_TIMES}", cell.replace("2^63-1", "2⁶³-1")).replace("|", "\\|")


# -- capabilities -------------------------------------------------------------------------------------------------


def caveats() -> list[str]:
    """A row a kind: its function of the library, and the first sentence of that."""
    from kohort.security.capabilities import caveats as module

    rows = []
    for kind in module.Kind:
        made = module.partitions if kind is module.Kind.PARTITIONS_BY_ID else getattr(module, kind.word)
        said = (inspect.getdoc(made) or "").split("\n")[0]
        rows.append((f"`{kind.word}`", f"`{made.__name__}({', '.join(inspect.signature(made).parameters)})`", said))
    return table(("caveat", "is made by", "meaning"), rows)


# -- the site -----------------------------------------------------------------------------------------------------

#: Page, section, and what makes it; beside these `bench NAME NAME` is a table of the published run.
SECTIONS: Final[tuple[tuple[str, str, Callable[[], list[str]]], ...]] = (
    ("explanation/two-protocols.md", "states of a classic group", classic_group_states),
    ("explanation/hand-over.md", "states of a consumer group", consumer_group_states),
    ("explanation/hand-over.md", "states of a consumer member", consumer_member_states),
    ("explanation/transactions.md", "states of a transactional id", transaction_states),
    ("explanation/transactions.md", "states of a transactional producer", producer_states),
    ("explanation/client.md", "states of the client's member", client_states),
    ("explanation/client.md", "steps of the client's member", client_steps),
    ("explanation/client.md", "events of the client", client_events),
    ("explanation/client.md", "refusals in callbacks", client_refusals),
    ("explanation/simulation.md", "laws", laws),
    ("reference/options.md", "options", options),
    ("reference/limits.md", "limits", limits),
    ("reference/security.md", "required rights", required_rights),
    ("reference/capabilities.md", "caveats", caveats),
    ("reference/migrate.md", "spellings", spellings),
    ("reference/migrate.md", "renamed", renamed),
    ("reference/migrate.md", "codes", codes),
    ("reference/performance.md", "run", bench_run),
)


def made(section: str) -> list[str]:
    """The lines of a section."""
    if section.startswith("bench "):
        return bench_table(published(), section.split()[1:])
    return {name: make for _, name, make in SECTIONS}[section]()


def render(text: str) -> str:
    """A page with its sections made."""
    return MARK.sub(lambda found: "\n".join(made(found[1])), text)


#: Pages of the site that are beside docs/, where readers of the repository look for them.
AT_THE_ROOT: Final = ("ARCHITECTURE.md", "SECURITY.md")


def outside(page: str, target: str) -> str | None:
    """The file of the project, below its root, to which a link of a page leads out of docs/."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target.partition("#")[0]))
    return None if path == "docs" or path.startswith(("docs/", "../")) else path


def links_outside(page: str, text: str) -> set[str]:
    targets = re.findall(r"\]\((?!https?:)([^)#\s]+)[^)]*\)", text)
    return {path for target in targets if (path := outside(page, target))}


def on_files(files: Any, *, config: Any) -> Any:
    """Take the files outside of docs/ that pages link to into the site (called by MkDocs)."""
    from mkdocs.structure.files import File

    wanted = {path for page in DOCS.rglob("*.md") for path in links_outside(name_of(page), page.read_text())}
    for path in sorted({*AT_THE_ROOT, *wanted}):
        for each in [ROOT / path] if (ROOT / path).is_file() else sorted((ROOT / path).iterdir()):
            files.append(File.generated(config, each.relative_to(ROOT).as_posix(), content=each.read_text()))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Make the sections of a page and turn its links to files outside of docs/ (called by MkDocs)."""
    name = page.file.src_uri
    here = posixpath.dirname(name)

    def turned(found: re.Match[str]) -> str:
        path = outside(name, found[1]) if name not in AT_THE_ROOT else found[1].removeprefix("docs/")
        if path is None:
            return found[0]
        path = path if not (ROOT / path).is_dir() else min((ROOT / path).iterdir()).relative_to(ROOT).as_posix()
        return f"]({posixpath.relpath(path, here or '.')}{found[2]})"

    return re.sub(r"\]\((?!https?:)([^)#\s]+)([^)]*)\)", turned, render(markdown))


def name_of(page: Path) -> str:
    return page.relative_to(DOCS).as_posix()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("SECTION is one of: " + "; ".join(section for _, section, _ in SECTIONS) + "; bench NAME NAME")
    sys.stdout.write("\n".join([*made(" ".join(sys.argv[1:])), ""]))
