"""The pages of docs/: their blocks, and a way to run one as a reader would paste it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from support.peers.cli import environment, forks_of

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
PAGES = {path.relative_to(DOCS).as_posix(): path.read_text() for path in sorted(DOCS.rglob("*.md"))}
#: Page with blocks that are not run as below -> the test that runs them; `None`: fragments of a reader's own program.
RUN_ELSEWHERE = {
    "how-to/encrypt-connections.md": "interop/test_secured_recipes.py",
    "how-to/log-in-by-oauth.md": "interop/test_secured_recipes.py",
    "how-to/log-in-by-scram.md": "interop/test_secured_recipes.py",
    "reference/access.md": "interop/test_access.py",
    "reference/assignors.md": "unit/assign/test_documentation.py",
    "reference/migrate.md": "interop/test_migrate_doc.py",
    "reference/pipelines.md": "spark/test_pipelines.py",
    "reference/security-client.md": "interop/test_secured_brokers.py",
    "reference/spark.md": None,
    "tutorials/spark-pipeline.md": "spark/test_spark_tutorial.py",
    "tutorials/testing.md": "interop/test_cluster.py",
}


class Block(NamedTuple):
    """A block of a page, and what the text block behind it says that it prints; empty where there is none."""

    page: str
    code: str
    shown: str


def blocks(page: str, language: str) -> list[Block]:
    """The blocks of a page in that language, in order."""
    found = re.findall(
        rf"^```{language}\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", PAGES[page], re.DOTALL | re.MULTILINE
    )
    return [Block(page, code, shown) for code, shown in found]


def is_program(page: str) -> bool:
    """Whether the Python blocks of a page are one program from top to bottom."""
    return page == "index.md" or page.startswith("tutorials/")


#: What the examples of all other pages need before them.
SET_UP = blocks("how-to/index.md", "python")[0].code


def scripts() -> list[Block]:
    """What is run of the pages' Python, each a process of its own with what it prints."""
    found = []
    for page in PAGES.keys() - RUN_ELSEWHERE.keys() - {"how-to/index.md"}:
        of_page = [block for block in blocks(page, "python") if not block.code.startswith(">>> ")]
        if is_program(page) and of_page:
            found.append(Block(page, "".join(each.code for each in of_page), "".join(each.shown for each in of_page)))
        elif not is_program(page):
            found += [Block(page, f"{SET_UP}\n{each.code}", each.shown) for each in of_page]
    return sorted(found)


def run_block(script: str, *, warnings: str = "error", variables: Mapping[str, str] | None = None) -> str:
    """What a script prints; it has to end well, without a warning unless they are handled otherwise (Python's -W)."""
    own = {"PYTHONFAULTHANDLER": "1", "PYTHONWARNINGS": warnings}
    code, out, err = forks_of(environment(own)).run([], environment=environment(variables), timeout=90, script=script)
    assert code == 0, f"{code}: {out.decode()}\n{err.decode()[-6000:]}"
    return out.decode()
