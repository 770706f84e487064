"""Seam on safetensors, which writes and reads from native code: redirected like other files, in trials."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from fulltilt.tap.seams.files import FileSeam


def redirect(module: ModuleType, files: FileSeam) -> None:
    """Replace what the package has just imported from its native part, before its submodules take it from there."""
    serialize_file, safe_open = module.serialize_file, module.safe_open

    def to_scratch(tensors: Any, filename: Any, *args: Any, **kwargs: Any) -> Any:
        return serialize_file(tensors, files.to_write(filename, keep_content=False), *args, **kwargs)

    def from_scratch(filename: Any, *args: Any, **kwargs: Any) -> Any:
        return safe_open(files.to_read(filename), *args, **kwargs)

    module.serialize_file, module.safe_open = to_scratch, from_scratch  # type: ignore[attr-defined]
