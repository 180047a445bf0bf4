"""What pyproject.toml cannot declare: the native build and the package roots."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import find_packages, setup
from setuptools.command.build_ext import build_ext

ROOTS = {"tokenspeed": ".", "tokenspeed_kernels": "kernels", "tokenspeed_tools": "tools"}

# The Makefile compiles the module by itself, while pip is busy with downloads, and says so here.
PREBUILT = os.environ.get("TS_NATIVE") == "prebuilt"


class BuildNative(build_ext):
    """Compiles several sources at a time (`--parallel N`, default two), and only what changed."""

    def build_extension(self, ext: Any) -> None:
        """Compile and link `ext`."""
        compiler = self.compiler
        jobs = self.parallel if isinstance(self.parallel, int) else 2
        headers = max((os.path.getmtime(path) for path in ext.depends), default=0.0)

        def compile_changed(sources: list[str], output_dir: str, **options: Any) -> list[str]:
            build = compiler._setup_compile(
                output_dir,
                options.get("macros"),
                options.get("include_dirs"),
                sources,
                ext.depends,
                options.get("extra_postargs"),
            )
            _, objects, extra, flags, todo = build
            arguments = compiler._get_cc_args(flags, options.get("debug"), None)

            def compile_one(target: str) -> None:
                source, suffix = todo[target]
                newest = max(headers, os.path.getmtime(source), os.path.getmtime("native/cffi_build.py"))
                if not os.path.exists(target) or os.path.getmtime(target) <= newest:
                    # A compile that is cut short must not leave a fresh-looking object behind.
                    partial = f"{target}.partial.o"
                    compiler._compile(partial, source, suffix, arguments, extra, flags)
                    Path(partial).replace(target)

            with ThreadPoolExecutor(jobs) as pool:
                list(pool.map(compile_one, objects))
            return objects

        compiler.compile = compile_changed
        super().build_extension(ext)


setup(
    packages=[
        name for package, root in ROOTS.items() for name in find_packages(root, include=[package, f"{package}.*"])
    ],
    package_dir={
        "": ".",
        "tokenspeed_kernels": "kernels/tokenspeed_kernels",
        "tokenspeed_tools": "tools/tokenspeed_tools",
    },
    cmdclass={"build_ext": BuildNative},
    cffi_modules=[] if PREBUILT else [f"native/cffi_build.py:{name}" for name in ("ffibuilder", "kernels_ffibuilder")],
    options={"bdist_wheel": {} if PREBUILT else {"py_limited_api": "cp311"}},
)
