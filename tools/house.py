"""Measures the house: how large the source is, how it hangs together, how it reads, and what a commit costs.

Run it with: python tools/house.py                          every row, beside the figure to reach
             python tools/house.py import_lines comments    these rows alone; --static: those that run nothing
             python tools/house.py --list circles           where the figure comes from, a place a line
             python tools/house.py --json                   the rows for another program
             python tools/house.py --tighten                takes better figures over as limits in pyproject.toml

Laws: a static row parses and runs nothing; only the rows of a commit start a broker and a consumer, on loopback.
`[tool.kohort.house]` in pyproject.toml has a limit for each static row, held by `tests/test_house.py`.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import statistics
import sys
import threading
import time
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from itertools import combinations
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
SRC: Final = ROOT / "src"
PYPROJECT, MAKEFILE = ROOT / "pyproject.toml", ROOT / "Makefile"

#: Words that name nothing, in the first line of a docstring.
_VAGUE: Final = re.compile(r"\b(who|what|whoever|whatever|somebody|nobody)\b", re.IGNORECASE)
#: In the head of a file that a tool writes.
_GENERATED: Final = re.compile(r"\bmade (of it )?by `python tools/", re.IGNORECASE)
#: In the head of a small file with one importer: why it is a file all the same.
_APART: Final = re.compile(r"^Apart: \S", re.MULTILINE)
#: Functions that run because time may have passed, not because something happened.
_TICKS: Final = re.compile(r"(^|_)(ticks?|deadlines?|rearm)(_|$)")
#: A field of KIP-848's `describe_group`, and an option of consumers: each stands for its like.
_FIELD, _OPTION = "assignor_failure", "check.crcs"
#: Classes of the client that lie over several files, or did; and how long a file is that is not small.
_DOORS, _SMALL_LINES = ("Consumer", "Admin", "ConsumerMember"), 100
#: Runs of equal lines are noticed from the first length on; those above the second are to be folded.
_EQUAL_LINES, _MOST_EQUAL_LINES = 6, 12
#: So often a commit is counted, after a join and a pause in which the broker comes to hold the member's heartbeat.
_COMMITS, _PAUSE_S = 5, 0.25
#: Module and name of a class.
ClassKey = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Found:
    """A figure, how it reads where the bare number says too little, and the places that it comes from."""

    figure: float
    reads: str = ""
    places: Sequence[str] = ()


class Row(NamedTuple):
    """A row of the table; `goal` is the most to reach, with `is_floor` the least."""

    what: str
    goal: float
    measure: Callable[[], Found]
    is_floor: bool = False

    def is_worse(self, figure: float, limit: float) -> bool:
        """Compare a figure with a limit, or with the goal."""
        return figure < limit if self.is_floor else figure > limit


def counted(places: Iterable[str]) -> Found:
    """Make a figure of the number of places."""
    return Found(figure=len(found := list(places)), places=found)


# -- the source -------------------------------------------------------------------------------------------------------


class Module:
    """A file of the source, parsed; lines are numbers, from 1."""

    def __init__(self, path: Path) -> None:
        #: Path below src, and the dotted name; that of a package is its folder's.
        self.file = path.relative_to(SRC).as_posix()
        self.name = self.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        self.text = path.read_text()
        self.lines = self.text.splitlines()
        tree = ast.parse(self.text)
        self.nodes: list[Any] = list(ast.walk(tree))
        head = ast.get_docstring(tree) or ""
        self.is_generated = _GENERATED.search(head) is not None
        # Kernels are compiled each by itself.
        is_kernel = self.name.endswith("kernels")
        self.is_apart = self.is_generated or is_kernel or _APART.search(head) is not None
        #: At the top, inside functions and under TYPE_CHECKING.
        self.imports = [node for node in self.nodes if isinstance(node, (ast.Import, ast.ImportFrom))]
        self.import_lines = lines_of(self.imports)
        within = ((node, "" if isinstance(node, ast.Import) else f"{node.module}.") for node in self.imports)
        self.imported = [f"{prefix}{alias.name}" for node, prefix in within for alias in node.names]
        self.classes = [node for node in self.nodes if isinstance(node, ast.ClassDef)]
        bodies = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        firsts = [node.body[0] for node in self.nodes if isinstance(node, bodies) and node.body]
        self.docstrings = [node for node in firsts if isinstance(node, ast.Expr) and text_of(node.value) is not None]
        texts = lines_of(node for node in self.nodes if isinstance(node, ast.JoinedStr) or text_of(node) is not None)
        #: Nothing but a comment; a `#` at the start of a line inside a text is none.
        self.comment_lines = {at for at, line in enumerate(self.lines, 1) if line.lstrip().startswith("#")} - texts
        filled = {at for at, line in enumerate(self.lines, 1) if line.strip()} | texts
        self.code_lines = filled - self.comment_lines - lines_of(self.docstrings)

    @cached_property
    def names(self) -> dict[str, ClassKey]:
        """Name of a class of this module, or of what it imports -> where that is defined."""
        found = {node.name: (self.name, node.name) for node in self.classes}
        for node in self.imports:
            if isinstance(node, ast.ImportFrom):
                found |= {alias.asname or alias.name: (node.module or "", alias.name) for alias in node.names}
        return found


def text_of(node: Any) -> str | None:
    """Return the value of a text, `None` of anything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def lines_of(nodes: Iterable[Any]) -> set[int]:
    """Return the numbers of the lines from the first to the last of each node."""
    return {line for node in nodes for line in range(node.lineno, node.end_lineno + 1)}


@cache
def modules() -> dict[str, Module]:
    """Parse every file of the source."""
    found = [Module(path) for path in sorted(SRC.rglob("*.py"))]
    return {module.name: module for module in found}


@cache
def imported() -> dict[str, set[str]]:
    """Find the modules of ours that each module imports, wherever the import stands."""
    known = modules()
    found = {
        name: {full if full in known else full.rpartition(".")[0] for full in known[name].imported} for name in known
    }
    return {name: names & (known.keys() - {name}) for name, names in found.items()}


# -- static rows ------------------------------------------------------------------------------------------------------


def count_lines(kind: str) -> Found:
    """Count the lines of one kind in all files."""
    return Found(figure=sum(len(getattr(module, kind)) for module in modules().values()))


def share(kind: str) -> Found:
    """Count the lines of one kind for 100 code lines."""
    return Found(figure=round(100 * count_lines(kind).figure / count_lines("code_lines").figure, 1))


def generated() -> Found:
    """Count the lines of files whose head names the tool that writes them."""
    found = [module for module in modules().values() if module.is_generated]
    places = [f"{len(module.lines):5} {module.file}" for module in found]
    return Found(figure=sum(len(module.lines) for module in found), places=places)


def lone_bases() -> Found:
    """Count the classes whose only use is as a base of one class elsewhere.

    A mixin is one, too. An import that hands a name on is a use, and so is any attribute of that name.
    """
    bases, used, heirs = bases_of_all(), used_otherwise(), defaultdict(list)
    for heir, parents in bases.items():
        for parent in parents:
            heirs[parent].append(heir)
    lone = [(key, heirs[key][0]) for key in sorted(bases) if len(heirs[key]) == 1 and key not in used]
    places = [f"{'.'.join(key)} <- {'.'.join(heir)}" for key, heir in lone if heir[0] != key[0]]
    doors = [f"{door} {len(kin)}/{len({name for name, _ in kin})}" for door in _DOORS if (kin := kin_of(door))]
    return Found(figure=len(places), reads=f"{len(places)}; classes/files: {', '.join(doors)}", places=places)


@cache
def bases_of_all() -> dict[ClassKey, list[ClassKey]]:
    """Find the bases of ours of every class."""
    return {
        (module.name, node.name): [module.names[base.id] for base in bases_in(node) if base.id in module.names]
        for module in modules().values()
        for node in module.classes
    }


def bases_in(node: ast.ClassDef) -> list[ast.Name]:
    """Find the names among the bases of a class: of `Base[T]` the first."""
    plain = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
    return [base for base in plain if isinstance(base, ast.Name)]


def used_otherwise() -> set[ClassKey]:
    """Find the classes that are named elsewhere than among the bases of a class."""
    by_name = defaultdict(set)
    for key in bases_of_all():
        by_name[key[1]].add(key)
    used: set[ClassKey] = set()
    for module in modules().values():
        as_base = {id(base) for node in module.classes for base in bases_in(node)}
        names = [node for node in module.nodes if isinstance(node, ast.Name)]
        used |= {module.names[node.id] for node in names if id(node) not in as_base and node.id in module.names}
        used = used.union(*(by_name[node.attr] for node in module.nodes if isinstance(node, ast.Attribute)))
        handed_on = module.names.keys() - {node.id for node in names}
        used |= {module.names[name] for name in handed_on if module.names[name][0] != module.name}
    return used


def kin_of(door: str) -> set[ClassKey]:
    """Find a class of the client with all that it inherits from; of several of one name that with the most."""
    bases = bases_of_all()

    def over(key: ClassKey) -> set[ClassKey]:
        return {key}.union(*(over(base) for base in bases[key] if base in bases))

    return max((over(key) for key in bases if key[1] == door and ".client." in key[0]), key=len, default=set())


def describe_files() -> Found:
    """Count the files that name a field of describe group, assignor_failure.

    From where a group has it, through the coordinator's reply, the wire and the admin client, to the shell. A field of
    both protocols, as offline_since_ms, has one more: the message of the other protocol.
    """
    return counted(module.file for module in modules().values() if re.search(rf"\b{_FIELD}\b", module.text))


def option_places(*, is_generated: bool) -> Found:
    """Count the places of an option of consumers, check.crcs, written by hand or by a tool.

    A place is an annotated name in a class or the option's name as a text; both in one statement are one.
    """
    keyword = _OPTION.replace(".", "_")
    places = []
    for module in modules().values():
        if module.name.startswith(("kohort.client", "kohort.spark")) and module.is_generated == is_generated:
            declared = [node for node in module.nodes if isinstance(node, ast.AnnAssign)]
            fields = [node for node in declared if ast.unparse(node.target) == keyword]
            named = [node for node in module.nodes if text_of(node) == _OPTION and node.lineno not in lines_of(fields)]
            places += [f"{module.file}:{node.lineno}" for node in (*fields, *named)]
    pages = [page for page in (ROOT / "docs").rglob("*.md") if is_generated and f"\n| `{_OPTION}`" in page.read_text()]
    return counted([*places, *(str(page.relative_to(ROOT)) for page in pages)])


def summaries() -> Found:
    """Divide the docstrings with who, what or their like on top by all, %."""
    every = [(module.file, node) for module in modules().values() for node in module.docstrings]
    firsts = [(f"{file}:{node.lineno}", (text_of(node.value) or "").strip().partition("\n")[0]) for file, node in every]
    vague = [f"{place} {first}" for place, first in firsts if _VAGUE.search(first)]
    figure = round(100 * len(vague) / len(firsts), 1)
    return Found(figure=figure, reads=f"{figure} of {len(firsts):,}", places=vague)


def equal_lines() -> Found:
    """Count the pairs of runs of more than 12 equal lines, without blank lines and imports."""
    runs = sorted(equal_runs(), reverse=True)
    long = [f"{count:5} {first} {second}" for count, first, second in runs if count > _MOST_EQUAL_LINES]
    longest = max((count for count, *_ in runs), default=0)
    return Found(figure=len(long), reads=f"{len(long)}, the longest {longest}", places=long)


def equal_runs() -> Iterator[tuple[int, str, str]]:
    """Find pairs of places with at least six equal lines, as long as they go on: how many, where, where."""
    kept: list[tuple[str, str]] = []
    for module in modules().values():
        wanted = [(at, line.rstrip()) for at, line in enumerate(module.lines, 1) if line.strip()]
        kept += [(line, f"{module.file}:{at}") for at, line in wanted if at not in module.import_lines]
        # The end of a file equals nothing.
        kept.append((f"\0{module.file}", ""))
    texts = [text for text, _ in kept]
    windows = defaultdict(list)
    for at in range(len(texts) - _EQUAL_LINES + 1):
        windows[tuple(texts[at : at + _EQUAL_LINES])].append(at)
    for places in windows.values():
        for first, second in combinations(places, 2):
            if texts[first - 1] != texts[second - 1]:
                count = _EQUAL_LINES
                while second + count < len(texts) and texts[first + count] == texts[second + count]:
                    count += 1
                yield count, kept[first][1], kept[second][1]


def circles() -> Found:
    """Count the circles of files, imports in functions and under TYPE_CHECKING included."""
    found = [sorted(circle) for circle in circles_of(imported())]
    reads = f"{len(found)}; files: {', '.join(str(len(circle)) for circle in found)}"
    return Found(figure=len(found), reads=reads, places=[" ".join(circle) for circle in found])


def circles_of(edges: Mapping[str, set[str]]) -> Iterator[set[str]]:
    """Find the sets of nodes that all reach each other."""
    reached: dict[str, set[str]] = {}
    for start in edges:
        ahead, found = [start], reached.setdefault(start, set())
        while ahead:
            new = edges[ahead.pop()] - found
            found |= new
            ahead.extend(new)
    left = {name for name in edges if name in reached[name]}
    while left:
        first = min(left)
        yield (circle := {name for name in reached[first] if first in reached[name]})
        left -= circle


def small_files() -> Found:
    """Count the files under 100 lines with one importer, of their folder.

    A line "Apart: ..." in the head that says why they are files takes them out; what a tool writes is not counted.
    """
    importers = defaultdict(list)
    for name, targets in imported().items():
        for target in targets:
            importers[target].append(name)
    single = [(module, importers[name][0]) for name, module in modules().items() if len(importers[name]) == 1]
    near = [pair for pair in single if pair[0].name.rpartition(".")[0] == pair[1].rpartition(".")[0]]
    small = [pair for pair in near if len(pair[0].lines) < _SMALL_LINES and not pair[0].is_apart]
    total = sum(len(module.lines) for module, _ in small)
    places = [f"{len(module.lines):5} {module.file} <- {user}" for module, user in small]
    return Found(
        figure=len(small), reads=f"{len(small)} with {total:,} lines; {len(single)} of any size", places=places
    )


# -- rows of a commit -------------------------------------------------------------------------------------------------


class Call(NamedTuple):
    """A call of a function of ours; `is_tick`: it is one of `_TICKS`, or runs within one."""

    thread: str
    file: str
    is_tick: bool


class Tracer:
    """Notes the calls of ours, once it is on, in this thread and in all that begin after it was set."""

    def __init__(self) -> None:
        self.is_on = False
        self.calls: list[Call] = []
        #: Thread -> how many ticks it is within.
        self._depths: dict[int, int] = defaultdict(int)

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        file = frame.f_code.co_filename.removeprefix(f"{SRC}/")
        if event not in ("call", "return") or file == frame.f_code.co_filename:
            return
        thread = threading.current_thread()
        is_tick = _TICKS.search(frame.f_code.co_name) is not None
        self._depths[thread.ident or 0] += is_tick * (1 if event == "call" else -1)
        if self.is_on and event == "call":
            self.calls.append(Call(thread.name, file, self._depths[thread.ident or 0] > 0))


@cache
def commits() -> list[list[Call]]:
    """Note the calls of the third commit within a second of a settled member, once in each of several groups.

    The broker holds the member's heartbeat and answers it for the commit, which is part of the commit's cost. After the
    first two commits the member heartbeats again at once, after the third it takes its time.
    CPython 3.11 counts a comprehension as a call, later versions do not.
    """
    sys.path.insert(0, str(SRC))
    import kohort

    tracer, found = Tracer(), []
    threading.setprofile(tracer)
    sys.setprofile(tracer)
    try:
        with kohort.Broker() as broker:
            servers = broker.bootstrap_servers
            with kohort.Producer(bootstrap_servers=servers) as producer:
                producer.send("orders", value=b"one").result(10)
            for at in range(_COMMITS):
                options: Any = {"group_id": f"billing-{at}", "auto_offset_reset": "earliest"}
                with kohort.Consumer(
                    "orders", bootstrap_servers=servers, enable_auto_commit=False, **options
                ) as consumer:
                    while not consumer.poll(1):
                        pass
                    for _ in range(3):
                        time.sleep(_PAUSE_S)
                        tracer.calls, tracer.is_on = [], True
                        consumer.commit()
                        tracer.is_on = False
                    found.append(tracer.calls)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return found


def calls_of_commit(*, is_tick: bool = False) -> Found:
    """Count the calls on the consumer's background thread, all of them or those of ticks."""
    background = [[call for call in calls if call.thread == "kohort-consumer"] for calls in commits()]
    return middle([sum(call.is_tick or not is_tick for call in calls) for calls in background])


def files_of_commit(*, is_broker: bool) -> Found:
    """Count the files that a commit passes, in both threads of the client or in the broker's."""
    sides = [[call for call in calls if (call.thread == "kohort-broker") == is_broker] for calls in commits()]
    return middle([len({call.file for call in calls}) for calls in sides])


def middle(counts: list[int]) -> Found:
    """Take the middle of several counts."""
    return Found(figure=statistics.median_low(counts), places=[str(count) for count in counts])


# -- the table --------------------------------------------------------------------------------------------------------

#: Name -> row, in the order of the table; for those whose names begin with "commit_" commits are run.
ROWS: Final = {
    "files": Row("source files", 620, lambda: counted(modules())),
    "lines": Row("lines of source", 109_028, lambda: count_lines("lines")),
    "client_files": Row(
        "files of client/", 130, lambda: counted(name for name in modules() if "kohort.client." in f"{name}.")
    ),
    "import_lines": Row("import lines of all code lines, %", 8.5, lambda: share("import_lines")),
    "generated": Row("generated lines in the tree", 0, generated),
    "lone_bases": Row("classes that are only the base of one elsewhere", 0, lone_bases),
    "commit_calls": Row("commit: calls on the background thread", 150, calls_of_commit),
    "commit_ticks": Row("of these ticks and deadline questions", 20, lambda: calls_of_commit(is_tick=True)),
    "commit_client_files": Row("commit: files of the client", 28, lambda: files_of_commit(is_broker=False)),
    "commit_broker_files": Row("commit: files of the broker", 42, lambda: files_of_commit(is_broker=True)),
    "describe_files": Row("files of src for a field of describe group", 5, describe_files),
    "option_places": Row("places for a consumer option, by hand", 1, lambda: option_places(is_generated=False)),
    "option_copies": Row("places for a consumer option, generated", 0, lambda: option_places(is_generated=True)),
    "summaries": Row("docstring summaries with who, what, ..., %", 3, summaries),
    "comments": Row("comment lines per 100 code lines", 7, lambda: share("comment_lines"), is_floor=True),
    "equal_lines": Row("pairs of more than 12 equal lines", 0, equal_lines),
    "circles": Row("circles of files", 0, circles),
    "small_files": Row("files under 100 lines with one importer", 0, small_files),
    "make_targets": Row("Makefile targets", 8, lambda: counted(re.findall(r"(?m)^([a-z-]+):", MAKEFILE.read_text()))),
}


def limits() -> dict[str, float]:
    """Read the figures that must not get worse, by their rows."""
    return dict(tomllib.loads(PYPROJECT.read_text())["tool"]["kohort"]["house"])


def tighten(found: Mapping[str, Found]) -> None:
    """Write the better figures over their limits."""
    before, mark, after = PYPROJECT.read_text().partition("[tool.kohort.house]\n")
    for name, limit in limits().items():
        if name in found and ROWS[name].is_worse(limit, found[name].figure):
            after = re.sub(rf"^{name} = \S+", f"{name} = {found[name].figure}", after, count=1, flags=re.MULTILINE)
    PYPROJECT.write_text(before + mark + after)


def shown(name: str, found: Found) -> str:
    """Make a line of a row."""
    row = ROWS[name]
    verdict = "not yet" if row.is_worse(found.figure, row.goal) else "reached"
    goal = f"{'>=' if row.is_floor else '<='} {row.goal:,}"
    return f"{name:20} {row.what:48} {found.reads or f'{found.figure:,}':64} {goal:>10}  {verdict}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the rows that are asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rows", nargs="*", help=", ".join(ROWS))
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument("--list", action="store_true", help="print the places that a figure comes from")
    parser.add_argument("--static", action="store_true", help="leave out the rows for which a commit is run")
    parser.add_argument("--tighten", action="store_true", help="take better figures of static rows over as limits")
    asked = parser.parse_args(arguments)
    if unknown := set(asked.rows) - ROWS.keys():
        parser.error(f"there is no row {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    names = [name for name in ROWS if not ((asked.static or asked.tighten) and name.startswith("commit_"))]
    found = {name: ROWS[name].measure() for name in names if name in (asked.rows or names)}
    if asked.tighten:
        tighten(found)
    if asked.json:
        reached = {name: not ROWS[name].is_worse(each.figure, ROWS[name].goal) for name, each in found.items()}
        rows = [
            {"name": name, "goal": ROWS[name].goal, "reached": reached[name], **asdict(found[name])} for name in found
        ]
        sys.stdout.write(f"{json.dumps(rows, indent=2)}\n")
        return
    for name, each in found.items():
        places = [f"    {place}\n" for place in each.places] if asked.list else []
        sys.stdout.write(f"{shown(name, each)}\n{''.join(places)}")


if __name__ == "__main__":
    main()
