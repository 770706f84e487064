"""Finds in the script's own source what a few steps may not show: that it differentiates gradients.

A penalty on gradients may begin, or come round, only after many steps (lazy regularisation). By then its forward pass
has run compiled, and there is no way back for that step.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator

_SECOND_DERIVATIVES = ("hessian", "hvp", "vhp")
"""Functions of `torch.autograd.functional` that ask for the graph of a gradient themselves."""
_INSTALLED = ("site-packages", "dist-packages", f"{os.sep}lib{os.sep}python")


def where_asked_for() -> str | None:
    """The first place that asks for the graph of a gradient, as "train.py:31"; None when there is none."""
    return next((place for path in _own_files() for place in places_in(path)), None)


def places_in(path: str) -> Iterator[str]:
    """The places in one file."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError):
        return
    if "create_graph" not in text and "autograd.functional" not in text:
        return
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _asks(node, "autograd.functional" in text):
            yield f"{os.path.basename(path)}:{node.lineno}"


def _asks(call: ast.Call, functional_is_used: bool) -> bool:
    for keyword in call.keywords:
        if keyword.arg == "create_graph":
            return not (isinstance(keyword.value, ast.Constant) and not keyword.value.value)
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return functional_is_used and name in _SECOND_DERIVATIVES


def _own_files() -> Iterator[str]:
    """The main file, and the modules beside and below it that are imported by now."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    if not main or any(part in main for part in _INSTALLED):
        return
    folder = os.path.dirname(os.path.abspath(main)) + os.sep
    yield os.path.abspath(main)
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if path and path.endswith(".py") and path.startswith(folder) and not any(part in path for part in _INSTALLED):
            yield path
