"""Seam on torch's own writing and reading of files, which goes past Python's `open`: redirected like the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fulltilt.tap.seams.attribute import Replacement
from fulltilt.tap.seams.files import FileSeam


class SavingSeam:
    """`torch.save`, `torch.load`, and those of TorchScript."""

    def __init__(self, files: FileSeam) -> None:
        self._files = files
        self._replacements = [
            Replacement(torch, "save", self._writer(torch.save)),
            Replacement(torch, "load", self._reader(torch.load)),
            Replacement(torch.jit, "save", self._writer(torch.jit.save)),
            Replacement(torch.jit, "load", self._reader(torch.jit.load)),
        ]

    def undo(self) -> None:
        for replacement in self._replacements:
            replacement.undo()

    def _writer(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def save(obj: object, f: Any, *args: Any, **kwargs: Any) -> Any:
            return original(obj, self._files.to_write(f, keep_content=False), *args, **kwargs)

        return save

    def _reader(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def load(f: Any, *args: Any, **kwargs: Any) -> Any:
            return original(self._files.to_read(f), *args, **kwargs)

        return load
