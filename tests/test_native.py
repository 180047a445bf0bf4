"""The typed stub of the native module names exactly what the module has, with as many parameters."""

from __future__ import annotations

import ast
from pathlib import Path

import tokenspeed
from tokenspeed.capi import ffi, lib

STUB = ast.parse((Path(tokenspeed.__file__).parent / "_native.pyi").read_text())
(LIB,) = [node for node in STUB.body if isinstance(node, ast.ClassDef) and node.name == "Lib"]


def test_the_stub_names_what_the_module_has() -> None:
    functions = {node.name for node in LIB.body if isinstance(node, ast.FunctionDef)}
    constants = {
        node.target.id for node in LIB.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    assert functions | constants == {name for name in dir(lib) if not name.startswith("__")}


def test_each_function_takes_as_many_arguments_as_in_c() -> None:
    for node in LIB.body:
        if isinstance(node, ast.FunctionDef):
            function = ffi.typeof(getattr(lib, node.name))
            assert len(node.args.args) - 1 == len(function.args), node.name
