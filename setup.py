"""Compiles the kernels where a C compiler is found; without one the same modules run as plain Python.

A build without a compiler has no extensions at all, so that its wheel has the tag py3-none-any: it is another product
than the compiled one, and the same for every machine. A kernel that a compiler refuses ends the build: a wheel with a
platform's tag has all of them. `CC=false` makes the wheel without kernels.
"""

import os
import re
import sysconfig
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory

from setuptools import Extension, setup  # isort: skip - from Python 3.12 on distutils is setuptools' own
from distutils.ccompiler import new_compiler
from distutils.errors import CCompilerError, DistutilsError
from distutils.sysconfig import customize_compiler


def published_readme() -> str:
    """The README with links that lead somewhere outside a checkout: into the source at the tag of this version."""
    urls = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    version = re.search(r'^VERSION.*"(.+)"', Path("src/kohort/base/__init__.py").read_text(encoding="utf-8"), re.M)[1]
    text = Path("README.md").read_text(encoding="utf-8")
    # A picture is shown only by its raw file.
    text = re.sub(r"(!\[[^\]]*\]\()(?![a-z]+:)", rf"\g<1>{urls['Source']}/raw/v{version}/", text)
    return re.sub(r"\]\((?![a-z]+:|#)", f"]({urls['Source']}/blob/v{version}/", text)


def has_compiler() -> bool:
    """Whether a C compiler takes what includes Python's headers."""
    with TemporaryDirectory() as folder:
        source = Path(folder, "include.c")
        source.write_text("#include <Python.h>\n")
        try:
            compiler = new_compiler()
            customize_compiler(compiler)
            compiler.compile([str(source)], output_dir=folder, include_dirs=[sysconfig.get_path("include")])
        except (CCompilerError, DistutilsError) as why:
            print(f"kohort: no C compiler ({why}): its kernels stay plain Python, several times slower")  # noqa: T201
            return False
    return True


def extensions() -> list[Extension]:
    """One extension per module of kernels; none where Cython or a C compiler is missing."""
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    if not has_compiler():
        return []
    modules = [
        Extension(".".join(path.with_suffix("").parts[1:]), [str(path)], extra_compile_args=["-O3", "-g0"])
        for path in sorted(Path("src").rglob("*kernels.py"))
    ]
    # The C that Cython writes stays out of the packages: it is neither committed nor installed.
    return list(cythonize(modules, language_level=3, build_dir="build/cython"))


setup(
    ext_modules=extensions(),
    # As many compilers at a time as there are cores.
    options={"build_ext": {"parallel": os.cpu_count()}},
    long_description=published_readme(),
    long_description_content_type="text/markdown",
)
