"""Calls us right after the user's process has imported torch. Standard library only; imports nothing of fulltilt.

Loaded by the start-up folder from its path, so that neither fulltilt nor its dependencies need to be importable in the
user's environment: only the package `fulltilt` itself is made known, and only once torch is there.
"""

import importlib.util
import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType


def install(package: str) -> None:
    """Arm the hook. `package` is the folder of the fulltilt package."""
    if "FULLTILT_SCRATCH" in os.environ:
        _make_fulltilt_importable(package)
        _leave_stacks(os.environ["FULLTILT_SCRATCH"])
        _protect_files(os.environ["FULLTILT_SCRATCH"])
    if "torch" not in sys.modules:
        sys.meta_path.insert(0, _AfterImport("torch", lambda module: _arm(package)))


class _AfterImport:
    """Calls back when a module has been imported.

    Stays on `sys.meta_path` until it really is: libraries also ask only whether a module could be imported.
    """

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self._name, self._then = name, then
        self._is_asking = False

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self._name or self._is_asking:
            return None
        self._is_asking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._is_asking = False
        if spec is not None and spec.loader is not None:
            self._call_after_exec(spec.loader)
        return spec

    def _call_after_exec(self, loader: Loader) -> None:
        exec_module = loader.exec_module

        def exec_then_call(module: ModuleType) -> None:
            del loader.exec_module  # the instance attribute below: the module's loader is itself again
            sys.meta_path.remove(self)
            exec_module(module)
            self._then(module)

        loader.exec_module = exec_then_call  # type: ignore[method-assign]


def _arm(package: str) -> None:
    _make_fulltilt_importable(package)
    from fulltilt.tap.entry import arm

    arm(os.environ["FULLTILT_REQUEST"])


def _leave_stacks(scratch: str) -> None:
    from fulltilt.tap import stacks

    stacks.install(scratch)


def _protect_files(scratch: str) -> None:
    folders = json.loads(os.environ.get("FULLTILT_OVERLAID", "{}"))
    if folders:
        from fulltilt.tap.seams import folder_renames

        folder_renames.install()
    if not folders or folders["redirected"]:
        _redirect(scratch, **folders)


def _redirect(scratch: str, overlaid: Sequence[str] = (), redirected: Sequence[str] = ()) -> None:
    from fulltilt.tap.seams import files, safetensors

    seam = files.install(scratch, allowed=tuple(overlaid), redirected=tuple(redirected))
    if "safetensors" not in sys.modules:
        sys.meta_path.insert(0, _AfterImport("safetensors", lambda module: safetensors.redirect(module, seam)))


def _make_fulltilt_importable(package: str) -> None:
    """Load the package from its folder without putting that folder's neighbours on sys.path."""
    if "fulltilt" in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(
        "fulltilt", os.path.join(package, "__init__.py"), submodule_search_locations=[package]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fulltilt"] = module
    spec.loader.exec_module(module)
