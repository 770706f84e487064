"""Carries caches from one trial to the next: what one has downloaded or compiled, the others need not.

Each trial writes into a layer of its own. When it has trained and ended, its layer on a cache is kept, and later trials
see it below theirs. The user's own cache is seen below all of them, and is not written to.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from fulltilt.trials.sandbox.layout import Layout
from fulltilt.trials.sandbox.mounts import is_within
from fulltilt.trials.sandbox.start import layer_of

_VARIABLES = (
    "XDG_CACHE_HOME",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_DATASETS_CACHE",
    "TORCH_HOME",
    "TORCH_EXTENSIONS_DIR",
    "TRITON_CACHE_DIR",
)
_IN_HOME = (".cache", ".triton")
_MOST_LAYERS = 30
"""Of one cache: the options of a mount must fit into a page (mount(2))."""


def cache_folders(environment: Mapping[str, str], working: str) -> list[str]:
    """Where libraries keep what they can make again; the working folder is in none of them."""
    home = environment.get("HOME", "")
    folders = [os.path.join(home, name) for name in _IN_HOME if os.path.isabs(home)]
    folders += [environment[name] for name in _VARIABLES if os.path.isabs(environment.get(name, ""))]
    return [folder for folder in folders if not is_within(working, os.path.realpath(folder))]


class KeptCaches:
    """The layers kept so far, in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept: dict[str, list[str]] = {}

    @property
    def layers(self) -> Mapping[str, list[str]]:
        """Cache -> layers, newest first."""
        return self._kept

    def keep(self, layout: Layout, layers: Path) -> None:
        """Take over what an ended trial has left in caches; `layers` is its folder of layers."""
        for number, cache in enumerate(layout.caches):
            known = self._kept.setdefault(cache, [])
            kept = self._folder / f"{number}-{len(known)}"
            with contextlib.suppress(OSError):  # then the next trial makes it again
                if len(known) < _MOST_LAYERS and any(os.scandir(layer_of(layout, cache, layers) / "upper")):
                    self._folder.mkdir(exist_ok=True)
                    os.rename(layer_of(layout, cache, layers) / "upper", kept)
                    known.insert(0, str(kept))
