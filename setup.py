"""Compiles the kernels where a C compiler is found; without one the same modules run as plain Python."""

from setuptools import Extension, setup

KERNELS = ["kohort.records.kernels"]


def extensions() -> list[Extension]:
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    modules = [
        Extension(name, [f"src/{name.replace('.', '/')}.py"], optional=True, extra_compile_args=["-O3"]) for name in KERNELS
    ]
    return list(cythonize(modules, language_level=3))


setup(ext_modules=extensions())
