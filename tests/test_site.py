"""The site of docs/ holds together, and says what the code says."""

from __future__ import annotations

import ast
import posixpath
import re
import runpy
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from kohort.base.options import OptionSet
from kohort.broker.apis.describe_broker import COUNTED
from kohort.broker.limitstable import LIMITS, Limit
from kohort.broker.options.settings import BROKER_OPTIONS
from kohort.client.options import CONSUMER_OPTIONS, PRODUCER_OPTIONS
from kohort.coordinator.classic.validation import (
    ASSIGNMENTS_LIMIT_BYTES,
    GROUP_METADATA_LIMIT_BYTES,
    MEMBER_METADATA_LIMIT_BYTES,
)
from kohort.coordinator.configs import GROUP_CONFIGS
from kohort.coordinator.consumer.regex import MAX_REGEX
from kohort.coordinator.consumer.validation import MAX_NAME, MAX_OWNED_PARTITIONS, MAX_SUBSCRIBED_TOPICS
from kohort.coordinator.settings import MIGRATION_POLICIES
from kohort.errors import ErrorCode
from kohort.security.capabilities.caveats import Kind
from kohort.storage.topicconfig import TOPIC_OPTIONS
from support.builders.benches import load_bench
from support.builders.site import PAGES, ROOT, RUN_ELSEWHERE, blocks, is_program

TOOL: dict[str, Any] = runpy.run_path(str(ROOT / "tools" / "docs.py"))
HOW_TO_LINES = 60
#: Below them are the files of Python that a page may name.
PLACES_OF_FILES = ("src", "tests", "tools", "bench", "examples")
#: Pages whose dotted names are facts about a broker, files, records and modules.
INSIDE = {
    "how-to/see-how-a-broker-is-doing.md",
    *(
        f"explanation/{name}.md"
        for name in ("coordinator-state", "data-directory", "durability", "non-obvious", "simulation")
    ),
}
#: Dotted names in code font that are no options: files, modules, and what clients are set to that ours do not have.
NO_OPTIONS = re.compile(
    r"(kohort|concurrent|tools|examples)\.|.*\.(py|md|json|properties|html|typed|jar|keys)$"
    r"|(group\.instance\.id|metadata\.recovery\.strategy|transactional\.id|transaction\.timeout\.ms)$"
)


def rows_under(page: str, heading: str) -> list[list[str]]:
    """The cells of the rows of the table with that first line."""
    (_, table) = PAGES[page].split(f"\n{heading}\n")
    return [[each.strip() for each in row.strip("|").split("|")] for row in table.split("\n\n", 1)[0].splitlines()[1:]]


def beside() -> dict[str, str]:
    """Pages that are not below docs/."""
    return {f"../{name}": (ROOT / name).read_text() for name in ("README.md", "SECURITY.md")}


def test_figures_of_the_threat_model_are_those_of_the_options() -> None:
    rows = re.findall(
        r"^\|[^|]*\| ([\d,]+)(?: ms)? \| `([\w.]+)` \|$", (ROOT / "SECURITY.md").read_text(), re.MULTILINE
    )
    assert len(rows) >= 10
    assert {name: figure for figure, name in rows} == {
        name: f"{BROKER_OPTIONS.option(name).default:,}" for _, name in rows
    }


# -- the site -----------------------------------------------------------------------------------------------------


def test_every_link_leads_to_a_file_and_a_heading() -> None:
    """MkDocs says it as well, where it is installed (`make docs`)."""
    wrong = []
    for page, text in {**PAGES, **beside()}.items():
        for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M)):
            path, _, anchor = target.partition("#")
            linked = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
            file = ROOT / "docs" / linked
            if not file.exists() or (anchor and anchor not in anchors_of(file.read_text())):
                wrong.append(f"{page}: {target}")
    assert wrong == []


def test_every_file_that_a_page_names_is_there() -> None:
    """A name is the end of a path: `static.py`, or `consumer/static.py` where it has to be told from others."""
    files = [f"/{each.relative_to(ROOT)}" for top in PLACES_OF_FILES for each in (ROOT / top).rglob("*.py")]
    files.append("/setup.py")
    architecture = (ROOT / "ARCHITECTURE.md").read_text()
    wrong = [
        f"{page}: {name}"
        for page, text in {**PAGES, "../ARCHITECTURE.md": architecture}.items()
        for name in re.findall(r"`((?:\w+/)*\w+\.py)`", text)
        if not any(each.endswith(f"/{name}") for each in files)
    ]
    assert wrong == []


def test_pages_name_the_actor() -> None:
    """No sentence is about somebody, nobody or whoever: a Kafka engineer wants to read which member or broker."""
    vague = re.compile(r"\b(who|whoever|whatever|somebody|nobody|everybody|anybody)\b", re.IGNORECASE)
    wrong = [
        f"{page}: {line}"
        for page, text in {**PAGES, **beside()}.items()
        for line in text.splitlines()
        if vague.search(re.sub(r"`[^`]*`", "", line))
    ]
    assert wrong == []


def anchors_of(text: str) -> set[str]:
    """The names of headings, as the site and GitHub make them; a page has no heading twice."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M), re.MULTILINE)
    slugs = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
    assert len(slugs) == len(set(slugs)), f"twice: {sorted(each for each in slugs if slugs.count(each) > 1)}"
    return set(slugs)


def test_every_page_is_in_the_navigation_once() -> None:
    named = re.findall(r"^ +- (?:[^:\n]+: )?([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(named) == sorted([*PAGES, "ARCHITECTURE.md", "SECURITY.md"])


def test_a_how_to_has_sixty_lines_at_most() -> None:
    lines = {page: text.count("\n") for page, text in PAGES.items() if page.startswith("how-to/")}
    assert len(lines) > 30
    assert {page: count for page, count in lines.items() if count > HOW_TO_LINES} == {}


def test_every_block_of_python_is_run() -> None:
    """By interop/test_site.py, or by the test that RUN_ELSEWHERE names; each shows what it prints."""
    for page, test in RUN_ELSEWHERE.items():
        assert blocks(page, "python"), page
        if test is not None:
            source = (ROOT / "tests" / test).read_text()
            assert page in source or Path(page).name in source, f"{test} does not run {page}"
    silent = [
        block.code
        for page in PAGES.keys() - RUN_ELSEWHERE.keys() - {"how-to/index.md"}
        for block in blocks(page, "python")
        if not block.shown and not is_program(page) and not block.code.startswith(">>> ")
    ]
    assert silent == []


def test_every_table_that_is_made_has_a_maker_and_stands_on_its_page_once() -> None:
    marked = [(page, mark) for page, text in PAGES.items() for mark in TOOL["MARK"].findall(text)]
    fixed = [(page, mark) for page, mark in marked if not mark.startswith("bench ")]
    assert sorted(fixed) == sorted((page, section) for page, section, _ in TOOL["SECTIONS"])
    for page, section, make in TOOL["SECTIONS"]:
        # A page's own sentences are not made, and what is made is not kept in it.
        first = next(line for line in make() if line.startswith("| ") or len(line) > 40)
        assert first not in PAGES[page], section


def test_states_of_a_transactional_producer_are_shown_as_they_are() -> None:
    """Abort is the only way out of ABORTABLE, and there is none out of FATAL."""
    rows = [[cell.strip() for cell in line.strip("| ").split(" |")] for line in TOOL["producer_states"]()]
    head, _, *others = [[*row, *[""] * 9][:9] for row in rows]
    found = {(row[0], head[at]): row[at] for row in others for at in range(1, 9) if row[at]}
    of = {state: {event: after for (event, at), after in found.items() if at == state} for state in head[1:]}
    broken = {"the producer is fenced, or was refused for good": "fatal"}
    failed = "a record, an offset or a request of the transaction has failed"
    ended = "the coordinator has decided the transaction"
    again = "the transaction is aborted, and its sequence numbers have a gap"
    joined = {"it takes part in a transaction that another producer has begun": "in transaction"}
    left = {"it has no part in a transaction any more, and no producer id": "uninitialized"}
    assert of == {
        "uninitialized": {"`init_transactions`": "initializing", **joined, **broken},
        "initializing": {"the coordinator has assigned producer id and epoch": "ready", **broken},
        "ready": {"`begin_transaction`": "in transaction", **left, **broken},
        "in transaction": {
            "`commit_transaction`": "committing", "`abort_transaction`": "aborting", failed: "abortable", **left,
            **broken,
        },
        "committing": {failed: "abortable", ended: "ready", **broken},
        "aborting": {ended: "ready", again: "initializing", **broken},
        "abortable": {"`abort_transaction`": "aborting", **broken},
        "fatal": {},
    }  # fmt: skip


def test_every_option_that_is_named_exists() -> None:
    """Dotted names in code font, but for pages about files and modules."""
    sets = (CONSUMER_OPTIONS, PRODUCER_OPTIONS, TOPIC_OPTIONS, BROKER_OPTIONS)
    known = {name for options in sets for each in options for name in (each.name, *each.also)} | GROUP_CONFIGS.keys()
    pages = [page for page in PAGES if page.startswith(("how-to/", "explanation/")) and page not in INSIDE]
    named = {
        (page, name)
        for page in pages
        for name in re.findall(r"`((?:[a-z]+\.)+[a-z]+)(?:=[^`]*)?`", PAGES[page])
        if not NO_OPTIONS.match(name)
    }
    assert len(named) > 80
    assert sorted((page, name) for page, name in named if name not in known) == []


# -- tables that are written by hand ------------------------------------------------------------------------------


def test_every_code_that_the_coordinator_gives_is_explained_and_no_other() -> None:
    sources = (ROOT / "src" / "kohort" / "coordinator").rglob("*.py")
    given = {code for path in sources for code in re.findall(r"ErrorCode\.([A-Z_]+)", path.read_text())}
    explained = [cell.strip("`") for cell, *_ in rows_under("reference/codes.md", "| code | meaning | what to do |")]
    assert sorted(explained) == sorted(given - {ErrorCode.NONE.name})


def test_events_of_the_history_are_those_that_are_told() -> None:
    rows = rows_under("reference/history.md", "| event | meaning |")
    named = [name for cell, *_ in rows for name in re.findall(r"`(\w+)`", cell)]
    kohort = ROOT / "src" / "kohort"
    tellers = [
        *(kohort / "coordinator" / "journal_events").glob("*.py"),
        kohort / "broker" / "groups" / "journallog.py",
    ]
    told = "".join(path.read_text() for path in tellers)
    assert named
    assert [name for name in named if f'"{name}"' not in told] == []


def test_lines_of_the_log_about_security_are_those_that_are_written() -> None:
    """With their levels, none left out."""
    rows = rows_under("reference/security.md", "| event | level | when |")
    named = {
        (event, level.strip())
        for events, levels, _ in rows
        for event, level in zip_longest(
            re.findall(r"`(\w+)`", events), levels.split(","), fillvalue=levels.split(",")[-1]
        )
    }
    broker = ROOT / "src" / "kohort" / "broker"
    others = ("connections/handshakes.py", "groups/waiting_rights.py", "limits/connection_quotas.py", "topics/acls.py")
    files = [*(broker / "access").glob("*.py"), *(broker / each for each in others)]
    written: dict[str, set[str]] = {}
    for path in files:
        for level, event in re.findall(r"log\.(\w+)\(\s*\"event=(\w+)", path.read_text()):
            written.setdefault(event, set()).add({"warning": "WARN", "exception": "ERROR"}.get(level, level.upper()))
    assert sorted(written.keys() - {event for event, _ in named}) == []
    assert [(event, level) for event, level in named if level not in written.get(event, ())] == []


@pytest.mark.parametrize(
    ("page", "limit"),
    [
        ("reference/codes.md", f"{MAX_SUBSCRIBED_TOPICS:,} topics"),
        ("reference/codes.md", f"{MAX_OWNED_PARTITIONS:,} partitions"),
        ("reference/codes.md", f"{MAX_NAME:,} characters"),
        (
            "reference/security.md",
            f"in frames of {BROKER_OPTIONS.option('sasl.server.max.receive.size').default >> 10} KiB, "
            f"for {BROKER_OPTIONS.option('sasl.login.timeout.ms').default // 1000} s",
        ),
        ("how-to/subscribe-by-pattern.md", f"{MAX_REGEX:,} bytes"),
        ("reference/codes.md", f"{MEMBER_METADATA_LIMIT_BYTES >> 20} MiB (classic)"),
        ("reference/codes.md", f"{GROUP_METADATA_LIMIT_BYTES >> 20} MiB in all"),
        ("reference/codes.md", f"{ASSIGNMENTS_LIMIT_BYTES >> 20} MiB"),
    ],
)
def test_limits_are_those_of_the_code(page: str, limit: str) -> None:
    assert limit in PAGES[page]


def test_tables_of_policies_are_whole() -> None:
    page = "how-to/limit-protocol-changes.md"
    (heading,) = [line for line in PAGES[page].splitlines() if line.startswith("| policy |")]
    ways = [re.findall(r"`(\w+)`", cell)[0] for cell, *_ in rows_under(page, heading)]
    assert sorted(ways) == sorted(MIGRATION_POLICIES)
    (option,) = [option for option in CONSUMER_OPTIONS if option.name == "revocation.timeout.policy"]
    told = [cell.strip("`") for cell, *_ in rows_under("explanation/client.md", "| policy | what happens |")]
    assert sorted(told) == sorted(option.choices)


def test_every_complaint_has_a_test_that_exists() -> None:
    """Or says why it has none."""
    rows = rows_under("reference/complaints.md", "| complaint | here | test |")
    assert rows
    for *_, test in rows:
        found = re.fullmatch(r"`([\w/]+\.py)::(\w+)`", test)
        assert found or test in ("none", "no test of its own: `make test` runs mypy"), test
        if found:
            assert found[2] in functions_of(ROOT / "tests" / found[1]), test


def functions_of(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def test_every_promise_of_durability_names_a_test_that_exists() -> None:
    """A row is a promise; headings and rules are none."""
    page = PAGES["explanation/durability.md"]
    rows = [line for line in page.splitlines() if line.startswith("| ") and "---" not in line]
    promises = [row for row in rows if not row.endswith("held by |")]
    assert len(promises) >= 15
    assert [row for row in promises if "`tests/" not in row] == []
    for path, test in set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page)):
        assert (ROOT / path).is_file(), path
        assert not test or test in functions_of(ROOT / path), test


@pytest.mark.parametrize("client", ["confluent-kafka", "kafka-python", "aiokafka"])
def test_a_program_of_another_client_changes_three_lines_at_most(client: str) -> None:
    """Of a consumer, and of a producer, beside the import."""
    (block,) = blocks(f"how-to/come-from-{client}.md", "python")
    halves = re.split(r"^(?=from kohort)", block.code, flags=re.MULTILINE)[1:]
    assert [half.count("# import: ") for half in halves] == [1, 1]
    assert all(half.count("# was: ") <= 3 for half in halves)


# -- tables that are made -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [each for _, _, each in TOOL["option_sets"]()], ids=lambda options: options.what)
def test_every_option_says_what_it_is(options: OptionSet) -> None:
    """A row and a sentence each, and a default that the option itself would take."""
    made = "\n".join(TOOL["options"]())
    for option in options:
        assert option.doc.endswith("."), f"{option.name}: {option.doc!r} is not a sentence"
        assert f"\n| `{option.name}` |" in made
        if option.default is not None:
            assert option.check(option.default) == option.default, f"{option.name} refuses its own default"


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.bounds)
def test_a_limit_names_an_option_and_a_test_that_there_are(limit: Limit) -> None:
    file, *names = limit.test.split("::")
    assert f"def {names[-1]}(" in (ROOT / "tests" / "unit" / "broker" / file).read_text()
    if limit.option is not None:
        assert limit.option in {option.name for option in BROKER_OPTIONS}


def test_each_limit_that_is_counted_is_in_the_table() -> None:
    assert {limit.counted for limit in LIMITS} == {*COUNTED, None}


def test_every_kind_of_caveat_is_in_the_format_of_tokens() -> None:
    page = "reference/capabilities.md"
    assert [(int(number), word.strip("`")) for number, word, _ in rows_under(page, "| kind | caveat | value |")] == [
        (int(kind), kind.word) for kind in Kind
    ]
    asked = [word for cell, _ in rows_under(page, "| caveat | is asked |") for word in re.findall(r"`(\w+)`", cell)]
    narrowed = [
        word for cell, _ in rows_under(page, "| kind | what is left |") for word in re.findall(r"`(\w+)`", cell)
    ]
    assert sorted(asked) == sorted({*narrowed, "partitions_by_id"}) == sorted(kind.word for kind in Kind)


def test_every_published_table_is_shown_once() -> None:
    """The page is that of a whole run, but for benches that are new."""
    bench = load_bench("published")
    results = bench.load(bench.PUBLISHED)
    tables = [table["name"] for entry in results.values() for table in entry["tables"]]
    marks = TOOL["MARK"].findall(PAGES["reference/performance.md"])
    shown = [name for mark in marks if mark.startswith("bench ") for name in mark.split()[1:]]
    assert len(shown) == len(set(shown))
    assert set(tables) <= set(shown)
    benches = load_bench("run").BENCHES
    assert list(results) == [name for name in benches if name in results]
    assert bench.missing(results, list(results)) == []
    assert set(benches) - results.keys() <= set(shown)
    for entry in results.values():
        for table in entry["tables"]:
            for row in table["rows"]:
                assert row["how"], row["what"]
                assert (row["peer"] is None) == (row["peer_name"] == "no peer"), row["what"]
