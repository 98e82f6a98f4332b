"""Writes the admin client for event loops: the calls of `client/admin/`, awaited.

Run it with: python tools/aio_admin.py

Whatever waits in there, directly or through something else, becomes a coroutine; what does not is imported from where
it is. What waits is found by names: `self._io.wait`, `time.sleep`, functions that call what waits, and arguments of the
names in `CALLBACKS`. mypy finds what was overlooked. Where a call cannot be awaited as it stands (in an f-string,
inside a lambda or a generator expression), the tool says so: give its result a name.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "kohort" / "client" / "admin"
TARGET = ROOT / "src" / "kohort" / "client" / "aio" / "admin"
PACKAGE, AIO_PACKAGE = "kohort.client.admin", "kohort.client.aio.admin"
#: What is written by hand for both: module -> its twin.
TWINS = {f"{PACKAGE}.host": "kohort.client.aio.admin_host"}
#: Arguments by which functions are handed what waits.
CALLBACKS = {"ask", "look"}
#: What waits by itself, of the host.
HOST_WAITS = {"wait", "call", "join"}
#: Types of callbacks that are named on their own.
ALIASES = {"Ask"}

HEAD = '''\
"""The same as `client/admin/{name}.py`, awaited.

Made of it by `python tools/aio_admin.py`: change it there.
"""
'''
#: What is said of the class that users see.
ADMIN_DOC = '''"""Asks a cluster, and changes it, on the running loop; calls and options as those of `kohort.Admin`.

    May be shared by the tasks of a loop. A call that is cancelled is given up; what it has sent may be carried out.

    >>> import asyncio, kohort, kohort.aio
    >>> async def partitions(address):
    ...     async with kohort.aio.Admin(bootstrap_servers=address) as admin:
    ...         await admin.create_topic("orders", 3)
    ...         (topic,) = await admin.describe_topics(["orders"])
    ...         return len(topic.partitions)
    >>> with kohort.Broker() as broker:
    ...     asyncio.run(partitions(broker.bootstrap_servers))
    3
    """'''

Function = ast.FunctionDef


class Module(NamedTuple):
    """One file."""

    name: str
    text: str
    tree: ast.Module

    @property
    def lines(self) -> list[int]:
        """Where each line begins, in bytes."""
        starts = [0]
        for line in self.text.encode().splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        return starts


class Waiting:
    """Which functions wait, by their names."""

    def __init__(self, modules: list[Module]) -> None:
        #: Methods, and functions of modules and of functions.
        self.methods: set[str] = set()
        self.functions: set[str] = set()
        #: What stands for modules and what comes from others: their functions do not wait.
        self._imported = {
            alias.asname or alias.name
            for module in modules
            for node in ast.walk(module.tree)
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for alias in node.names
        }
        while True:
            known = len(self.methods) + len(self.functions)
            for module in modules:
                self._look(module.tree, in_class=False)
            if len(self.methods) + len(self.functions) == known:
                return

    def _look(self, node: ast.AST, *, in_class: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Function) and any(self.is_call(each) for each in own_nodes(child)):
                (self.methods if in_class else self.functions).add(child.name)
            self._look(child, in_class=isinstance(child, ast.ClassDef))

    def is_call(self, node: ast.AST) -> bool:
        """Whether it is a call of something that waits."""
        if not isinstance(node, ast.Call):
            return False
        match node.func:
            case ast.Attribute(value=ast.Attribute(attr="_io"), attr=name):
                return name in HOST_WAITS
            case ast.Attribute(value=ast.Name(id="time"), attr="sleep"):
                return True
            case ast.Attribute(value=ast.Name(id=owner), attr=name):
                return name in self.methods and owner not in self._imported
            case ast.Name(id=name):
                return name in self.functions or name in CALLBACKS
        return False

    def is_definition(self, node: ast.AST, *, in_class: bool) -> bool:
        """Whether it becomes a coroutine."""
        return isinstance(node, Function) and node.name in (self.methods if in_class else self.functions)

    def is_kept(self, node: ast.stmt) -> bool:
        """Whether a module's statement is written anew: a function that waits, or a class with one."""
        if isinstance(node, ast.ClassDef):
            return any(self.is_definition(each, in_class=True) for each in node.body) or node.name == "Admin"
        return self.is_definition(node, in_class=False)


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """What runs when the function is called, not what it defines."""
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, (ast.FunctionDef, ast.ClassDef, ast.Lambda)):
            yield child
            yield from own_nodes(child)


class Writer:
    """Writes one module anew."""

    def __init__(self, module: Module, waiting: Waiting, written: dict[str, set[str]]) -> None:
        self._module = module
        self._waiting = waiting
        #: Module -> the names that its twin defines.
        self._written = written
        self._starts = module.lines
        #: (from, to, in its place), in bytes.
        self._edits: list[tuple[int, int, str]] = []

    def write(self) -> str:
        """The whole text, before it is put in order."""
        imports: list[str] = ["import asyncio", "from collections.abc import Awaitable"]
        kept: list[str] = []
        others: list[str] = []
        for node in self._module.tree.body:
            if isinstance(node, ast.ImportFrom) and node.module == "__future__":
                continue
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                imports += self._import(node)
            elif isinstance(node, ast.If):
                others.append(ast.unparse(node))
            elif self._waiting.is_kept(node) or self._is_alias(node):
                kept.append(self._text_of(node))
            elif names := list(defined(node)):
                imports.append(f"from {PACKAGE}.{self._module.name} import {', '.join(names)}")
        head = HEAD.format(name=self._module.name)
        parts = ["from __future__ import annotations", "\n".join(imports), *others, *kept]
        return head + "\n" + "\n\n".join(parts) + "\n"

    def _is_alias(self, node: ast.stmt) -> bool:
        return isinstance(node, ast.Assign) and bool(ALIASES & set(defined(node)))

    def _import(self, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
        if isinstance(node, ast.Import):
            yield ast.unparse(node)
            return
        for alias in node.names:
            module = node.module or ""
            if alias.name in self._written.get(module, ()):
                module = TWINS.get(module, module.replace(PACKAGE, AIO_PACKAGE))
            yield f"from {module} import {ast.unparse(alias)}"

    def _text_of(self, node: ast.stmt) -> str:
        self._edits = []
        if self._is_alias(node):
            assert isinstance(node, ast.Assign)
            self._make_awaitable(node.value)
        self._visit(node, [], in_class=False)
        decorators = getattr(node, "decorator_list", [])
        begin = min([self._at(node)[0], *(self._at(each)[0] - 1 for each in decorators)])
        data = self._module.text.encode()
        text, at = "", begin
        for start, end, instead in sorted(self._edits):
            text += data[at:start].decode() + instead
            at = end
        return text + data[at : self._at(node)[1]].decode()

    def _visit(self, node: ast.AST, parents: list[ast.AST], *, in_class: bool) -> None:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            self._shorten(node)
        if self._waiting.is_definition(node, in_class=in_class):
            assert isinstance(node, Function)
            begin = self._at(node)[0]
            self._edits.append((begin, begin, "async "))
        if isinstance(node, ast.arg) and node.arg in CALLBACKS and node.annotation is not None:
            self._make_awaitable(node.annotation)
        if self._waiting.is_call(node):
            self._await(node, parents)
        for child in ast.iter_child_nodes(node):
            self._visit(child, [*parents, node], in_class=isinstance(node, ast.ClassDef))

    def _await(self, node: ast.AST, parents: list[ast.AST]) -> None:
        assert isinstance(node, ast.Call)
        begin, end = self._at(node)
        match node.func:
            case ast.Attribute(value=ast.Name(id="time") as module):
                self._edits.append((*self._at(module), "asyncio"))
        if isinstance(parents[-1], ast.Lambda):
            # It returns what is to be awaited.
            return
        for parent in reversed(parents):
            if isinstance(parent, (ast.FunctionDef, ast.ClassDef)):
                break
            if isinstance(parent, (ast.Lambda, ast.JoinedStr)) or is_late(parent, node):
                raise SystemExit(f"{self._module.name}.py:{node.lineno}: cannot be awaited there; give it a name")
        holder = parents[-1]
        is_begun = isinstance(holder, (ast.Attribute, ast.Subscript, ast.Call)) and begin == self._at(holder)[0]
        self._edits.append((begin, begin, "(await " if is_begun else "await "))
        if is_begun:
            self._edits.append((end, end, ")"))

    def _make_awaitable(self, annotation: ast.expr) -> None:
        if isinstance(annotation, ast.Subscript) and isinstance(annotation.slice, ast.Tuple):
            begin, end = self._at(annotation.slice.elts[1])
            self._edits += [(begin, begin, "Awaitable["), (end, end, "]")]

    def _shorten(self, node: ast.FunctionDef | ast.ClassDef) -> None:
        """Examples are those of the blocking calls."""
        first = node.body[0]
        if not (isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)):
            return
        begin, end = self._at(first)
        text = self._module.text.encode()[begin:end].decode()
        if node.name == "Admin":
            self._edits.append((begin, end, ADMIN_DOC))
        elif ">>>" in text:
            paragraphs = text.removesuffix('"""').split("\n\n")
            rest = [each for each in paragraphs if not each.lstrip().startswith(">>>")]
            closing = '"""' if len(rest) == 1 and "\n" not in rest[0] else f'\n{" " * first.col_offset}"""'
            self._edits.append((begin, end, "\n\n".join(rest).rstrip() + closing))

    def _at(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, (ast.stmt, ast.expr, ast.arg))
        assert node.end_lineno is not None and node.end_col_offset is not None
        return (
            self._starts[node.lineno - 1] + node.col_offset,
            self._starts[node.end_lineno - 1] + node.end_col_offset,
        )


def is_late(parent: ast.AST, node: ast.AST) -> bool:
    """Whether it is inside a generator expression, and not what that walks through."""
    return isinstance(parent, ast.GeneratorExp) and node not in ast.walk(parent.generators[0].iter)


def defined(node: ast.stmt) -> Iterator[str]:
    """The names that a statement of a module defines."""
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
            yield name


def documents() -> dict[str, str]:
    """File -> text."""
    modules = [
        Module(path.stem, path.read_text(), ast.parse(path.read_text()))
        for path in sorted(SOURCE.glob("*.py"))
        if path.stem not in ("__init__", "host")
    ]
    waiting = Waiting(modules)
    written = {f"{PACKAGE}.host": {"AdminHost"}}
    for module in modules:
        kept = [node for node in module.tree.body if waiting.is_kept(node)]
        if kept:
            written[f"{PACKAGE}.{module.name}"] = {name for node in kept for name in defined(node)} | ALIASES
    found = {"__init__.py": '"""The admin client for event loops; made by `python tools/aio_admin.py`."""\n'}
    for module in modules:
        if f"{PACKAGE}.{module.name}" in written:
            found[f"{module.name}.py"] = in_order(Writer(module, waiting, written).write(), f"{module.name}.py")
    return found


def in_order(text: str, name: str) -> str:
    """Without imports that nobody needs, and as ruff has it."""
    path = str(TARGET / name)
    for words in (("check", "--fix", "--exit-zero", "--select", "I,F401"), ("format",)):
        command = [sys.executable, "-m", "ruff", *words, "--quiet", "--stdin-filename", path, "-"]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, cwd=ROOT)
        if done.returncode:
            raise SystemExit(f"{name}: {done.stderr}\n{text}")
        text = done.stdout
    return text


def main() -> None:
    TARGET.mkdir(exist_ok=True)
    there = documents()
    for path in TARGET.glob("*.py"):
        if path.name not in there:
            path.unlink()
    for name, text in there.items():
        (TARGET / name).write_text(text)


if __name__ == "__main__":
    main()
