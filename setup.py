"""Compiles the kernels where a C compiler is found; without one the same modules run as plain Python."""

from setuptools import Extension, setup

KERNELS = [
    "kohort.client.producer.core.placing_kernels",
    "kohort.records.kernels",
    "kohort.records.build_kernels",
    "kohort.records.row_kernels",
    "kohort.records.span_kernels",
    "kohort.assign.kernels",
    "kohort.assign.balance_kernels",
    "kohort.assign.chain_kernels",
]


def extensions() -> list[Extension]:
    """One optional extension per kernel; none where Cython is missing."""
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    modules = [
        Extension(name, [f"src/{name.replace('.', '/')}.py"], extra_compile_args=["-O3", "-g0"]) for name in KERNELS
    ]
    # The C that Cython writes stays out of the packages: it is neither committed nor installed.
    compiled = list(cythonize(modules, language_level=3, build_dir="build/cython"))
    for module in compiled:
        # Set here because cythonize makes new extensions and forgets it.
        module.optional = True
    return compiled


setup(ext_modules=extensions())
