"""Seam on files, in trials: whatever the script writes goes to the trial's scratch, and is read back from there.

No trial may overwrite a file of the user's. Writes are redirected to `<scratch>/<absolute path>`; reads, `os.stat`,
renames and removals see the redirected file where there is one. A removed file of the user's is only hidden. Covers
Python's own file functions and `torch.save`; libraries that write files from native code are not covered.
"""

import builtins
import io
import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from typing import Any

import torch

from fulltilt.tap.seams.attribute import Replacement

_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class FileSeam:
    """Redirects writes outside of `allowed` folders into `scratch`."""

    def __init__(self, scratch: str, allowed: tuple[str, ...] = ()) -> None:
        self._scratch = os.path.abspath(scratch)
        caches = (os.path.expanduser("~/.cache"), os.environ.get("TORCHINDUCTOR_CACHE_DIR", ""))
        self._allowed = tuple(
            os.path.abspath(folder)
            for folder in (*allowed, self._scratch, tempfile.gettempdir(), *caches, "/dev", "/proc", "/sys")
            if folder
        )
        self._hidden: set[str] = set()
        self._stat, self._os_open = os.stat, os.open
        self._replacements = [Replacement(*replacement) for replacement in self._new_functions()]

    def undo(self) -> None:
        for replacement in reversed(self._replacements):
            replacement.undo()

    def _new_functions(self) -> list[tuple[Any, str, Callable[..., Any]]]:
        opened = self._make_open(builtins.open)
        return [
            (builtins, "open", opened),
            (io, "open", opened),
            (os, "open", self._make_os_open(os.open)),
            (os, "stat", self._make_reader(os.stat)),
            (os, "remove", self._make_remove(os.remove)),
            (os, "unlink", self._make_remove(os.unlink)),
            (os, "rename", self._make_rename()),
            (os, "replace", self._make_rename()),
            (shutil, "rmtree", self._make_rmtree(shutil.rmtree)),
            (torch, "save", self._make_save(torch.save)),
            (torch, "load", self._make_load(torch.load)),
        ]

    def to_read(self, path: Any) -> Any:
        """Where to read `path` from: the redirected file where there is one.

        Raises:
            FileNotFoundError: when the script has removed it.
        """
        name = _name_of(path)
        if name is None or self._is_allowed(name):
            return path
        redirected = self._redirected(name)
        if self._exists(redirected):
            return redirected
        if name in self._hidden:
            raise FileNotFoundError(2, "No such file or directory (removed in this trial)", os.fspath(path))
        return path

    def to_write(self, path: Any, *, keep_content: bool) -> Any:
        """Where to write `path` to; with what the user's file holds already, when `keep_content`."""
        name = _name_of(path)
        if name is None or self._is_allowed(name) or self._is_special(name):
            return path
        redirected = self._redirected(name)
        if not os.path.isdir(os.path.dirname(name)) and not os.path.isdir(os.path.dirname(redirected)):
            return path  # the script gets the error that it would have got
        os.makedirs(os.path.dirname(redirected), exist_ok=True)
        if keep_content and not self._exists(redirected) and self._exists(name) and name not in self._hidden:
            shutil.copy2(name, redirected)
        self._hidden.discard(name)
        return redirected

    def _make_open(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def open(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            if any(letter in mode for letter in "wax+"):
                return original(self.to_write(file, keep_content="w" not in mode), mode, *args, **kwargs)
            return original(self.to_read(file), mode, *args, **kwargs)

        return open

    def _make_os_open(self, original: Callable[..., int]) -> Callable[..., int]:
        def os_open(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
            if kwargs.get("dir_fd") is not None:
                return original(path, flags, *args, **kwargs)
            if flags & _WRITE_FLAGS:
                return original(self.to_write(path, keep_content=not flags & os.O_TRUNC), flags, *args, **kwargs)
            return original(self.to_read(path), flags, *args, **kwargs)

        return os_open

    def _make_reader(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def read(path: Any, *args: Any, **kwargs: Any) -> Any:
            return original(path if kwargs.get("dir_fd") is not None else self.to_read(path), *args, **kwargs)

        return read

    def _make_remove(self, original: Callable[..., None]) -> Callable[..., None]:
        def remove(path: Any, *args: Any, **kwargs: Any) -> None:
            name = _name_of(path)
            if name is None or kwargs.get("dir_fd") is not None or self._is_allowed(name):
                return original(path, *args, **kwargs)
            redirected = self._redirected(name)
            if self._exists(redirected):
                original(redirected)
            elif not self._exists(name) or name in self._hidden:
                return original(redirected)  # raises what the script expects
            self._hidden.add(name)
            return None

        return remove

    def _make_rename(self) -> Callable[..., None]:
        original = os.replace

        def rename(src: Any, dst: Any, *args: Any, **kwargs: Any) -> None:
            source, target = _name_of(src), _name_of(dst)
            if source is None or target is None or (self._is_allowed(source) and self._is_allowed(target)):
                return original(src, dst, *args, **kwargs)
            new = self.to_write(dst, keep_content=False)
            old = self.to_read(src)
            if old != source or self._is_allowed(source):
                return original(old, new)
            shutil.copy2(source, new) if os.path.isfile(source) else shutil.copytree(source, new)
            self._hidden.add(source)
            return None

        return rename

    def _make_rmtree(self, original: Callable[..., None]) -> Callable[..., None]:
        def rmtree(path: Any, *args: Any, **kwargs: Any) -> None:
            name = _name_of(path)
            if name is None or self._is_allowed(name):
                return original(path, *args, **kwargs)
            if os.path.isdir(self._redirected(name)):
                original(self._redirected(name), ignore_errors=True)
            for folder, _, files in os.walk(name):
                self._hidden.update(os.path.join(folder, file) for file in files)
            return None

        return rmtree

    def _make_save(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def save(obj: object, f: Any, *args: Any, **kwargs: Any) -> Any:
            return original(obj, self.to_write(f, keep_content=False), *args, **kwargs)

        return save

    def _make_load(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def load(f: Any, *args: Any, **kwargs: Any) -> Any:
            return original(self.to_read(f), *args, **kwargs)

        return load

    def _is_allowed(self, name: str) -> bool:
        return any(name == folder or name.startswith(folder + os.sep) for folder in self._allowed)

    def _is_special(self, name: str) -> bool:
        """A pipe, socket or device: not a file that could be overwritten."""
        try:
            mode = self._stat(name).st_mode
        except OSError:
            return False
        return not stat.S_ISREG(mode)

    def _redirected(self, name: str) -> str:
        return os.path.join(self._scratch, name.lstrip(os.sep))

    def _exists(self, name: str) -> bool:
        try:
            self._stat(name)
        except OSError:
            return False
        return True


def _name_of(path: Any) -> str | None:
    """The absolute path, or None for descriptors and file objects."""
    if isinstance(path, bool | int) or not isinstance(path, str | bytes | os.PathLike):
        return None
    return os.path.abspath(os.fsdecode(path))
