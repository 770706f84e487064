"""Seam on files, in trials without an overlay: what the script writes goes to scratch, and is read back from there.

No trial may overwrite a file of the user's. Writes are redirected to `<scratch>/<absolute path>`; reads, listings,
renames and removals see the redirected file where there is one. A removed file or folder of the user's is only hidden.
Covers Python's own functions; libraries that write files from native code are not covered. Standard library only, as it
is installed before anything of the user's runs.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from fulltilt.tap.seams.attribute import Replacement

_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_READERS = ("stat", "lstat", "readlink")
_CHANGERS = ("chmod", "utime", "truncate")
_SUPPORT_SETS = ("supports_follow_symlinks", "supports_dir_fd", "supports_fd", "supports_effective_ids")

active: FileSeam | None = None
"""The seam of this process, once it is installed."""


class FileSeam:
    """Redirects writes outside of `allowed` folders, and those to `redirected` folders within them, into `scratch`."""

    def __init__(self, scratch: str, allowed: tuple[str, ...] = (), redirected: tuple[str, ...] = ()) -> None:
        self._scratch = os.path.abspath(scratch)
        caches = (os.path.expanduser("~/.cache"), os.environ.get("TORCHINDUCTOR_CACHE_DIR", ""))
        self._allowed = tuple(
            os.path.abspath(folder)
            for folder in (*allowed, self._scratch, tempfile.gettempdir(), *caches, "/dev", "/proc", "/sys")
            if folder
        )
        self._redirected_folders = redirected
        self._hidden: set[str] = set()
        self._lstat, self._listdir = os.lstat, os.listdir
        self._mkdir, self._replace = os.mkdir, os.replace
        self._replacements = [self._replace_one(*replacement) for replacement in self._new_functions()]

    def undo(self) -> None:
        for replacement in reversed(self._replacements):
            replacement.undo()

    def to_read(self, path: Any) -> Any:
        """Where to read `path` from: the redirected file where there is one.

        Raises:
            FileNotFoundError: when the script has removed it.
        """
        name = _name_of(path)
        if name is None or self._is_allowed(name):
            return path
        redirected = self._redirected(name)
        if self._exists(redirected) and not (self._is_folder(redirected) and self._is_there(name)):
            return redirected
        if name in self._hidden:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory (removed in this trial)", os.fspath(path))
        return path

    def to_write(self, path: Any, *, keep_content: bool) -> Any:
        """Where to write `path` to; with what the user's file holds already, when `keep_content`."""
        name = _name_of(path)
        if name is None or self._is_allowed(name) or self._is_special(name):
            return path
        redirected, folder = self._redirected(name), os.path.dirname(name)
        if not self._is_there(folder) and not self._is_folder(self._redirected(folder)):
            return path  # the script gets the error that it would have got
        self._make_folders(os.path.dirname(redirected))
        if keep_content and not self._exists(redirected) and self._is_there(name):
            shutil.copyfile(name, redirected)
        self._hidden.discard(name)
        return redirected

    def _replace_one(self, owner: Any, name: str, function: Callable[..., Any]) -> Replacement:
        for support in _SUPPORT_SETS if owner is os else ():
            if getattr(os, name) in getattr(os, support, ()):
                getattr(os, support).add(function)
        return Replacement(owner, name, function)

    def _new_functions(self) -> list[tuple[Any, str, Callable[..., Any]]]:
        opened = self._make_open(builtins.open)
        return [
            (builtins, "open", opened),
            (io, "open", opened),
            (os, "open", self._make_os_open(os.open)),
            *((os, name, self._make_reader(getattr(os, name))) for name in _READERS),
            (os, "access", self._make_access(os.access)),
            *((os, name, self._make_changer(getattr(os, name))) for name in _CHANGERS),
            (os, "listdir", self._make_listdir()),
            (os, "scandir", self._make_scandir(os.scandir)),
            (os, "mkdir", self._make_mkdir()),
            (os, "symlink", self._make_symlink(os.symlink)),
            (os, "link", self._make_link(os.link)),
            (os, "rmdir", self._make_rmdir(os.rmdir)),
            (os, "remove", self._make_remove(os.remove)),
            (os, "unlink", self._make_remove(os.unlink)),
            (os, "rename", self._make_rename()),
            (os, "replace", self._make_rename()),
            (shutil, "rmtree", self._make_rmtree(shutil.rmtree)),
        ]

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

    def _make_access(self, original: Callable[..., bool]) -> Callable[..., bool]:
        def access(path: Any, *args: Any, **kwargs: Any) -> bool:
            try:
                return original(path if kwargs.get("dir_fd") is not None else self.to_read(path), *args, **kwargs)
            except FileNotFoundError:
                return False

        return access

    def _make_changer(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def change(path: Any, *args: Any, **kwargs: Any) -> Any:
            name = _name_of(path)
            if name is None or kwargs.get("dir_fd") is not None or self._is_allowed(name):
                return original(path, *args, **kwargs)
            if self._is_there(name) and self._is_folder(name):
                return None  # the mode or time of a folder of the user's stays
            return original(self.to_write(path, keep_content=True), *args, **kwargs)

        return change

    def _make_listdir(self) -> Callable[..., list[Any]]:
        def listdir(path: Any = ".") -> list[Any]:
            name = _name_of(path)
            if name is None or self._is_allowed(name):
                return self._listdir(path)
            names = sorted(self._names_in(name, path))
            return [os.fsencode(found) for found in names] if isinstance(path, bytes) else list(names)

        return listdir

    def _names_in(self, name: str, path: Any = None) -> set[str]:
        """What the script sees in a folder: what is there and not removed, and what it has written."""
        redirected = self._redirected(name)
        written = set(self._listdir(redirected)) if self._is_folder(redirected) else set()
        if self._is_folder(redirected) and not self._is_there(name):
            return written
        there = {os.fsdecode(found) for found in self._listdir(self.to_read(path if path is not None else name))}
        return written | {found for found in there if os.path.join(name, found) not in self._hidden}

    def _make_scandir(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def scandir(path: Any = ".") -> Any:
            name = _name_of(path)
            if name is None or self._is_allowed(name):
                return original(path)
            redirected = self._redirected(name)
            entries = {entry.name: entry for entry in original(redirected)} if self._is_folder(redirected) else {}
            if self._is_there(name) or (not entries and not self._is_folder(redirected)):
                for entry in original(self.to_read(path)):
                    if os.path.join(name, os.fsdecode(entry.name)) not in self._hidden:
                        entries.setdefault(entry.name, entry)
            return _Entries(iter(entries.values()))

        return scandir

    def _make_mkdir(self) -> Callable[..., None]:
        def mkdir(path: Any, *args: Any, **kwargs: Any) -> None:
            name = _name_of(path)
            if name is None or kwargs.get("dir_fd") is not None or self._is_allowed(name) or self._is_there(name):
                return self._mkdir(path, *args, **kwargs)
            redirected, folder = self._redirected(name), os.path.dirname(name)
            if self._is_there(folder):
                self._make_folders(os.path.dirname(redirected))
            self._mkdir(redirected, *args, **kwargs)
            self._hidden.discard(name)
            return None

        return mkdir

    def _make_symlink(self, original: Callable[..., None]) -> Callable[..., None]:
        def symlink(src: Any, dst: Any, *args: Any, **kwargs: Any) -> None:
            name = _name_of(dst)
            if name is None or kwargs.get("dir_fd") is not None or self._is_allowed(name) or self._is_there(name):
                return original(src, dst, *args, **kwargs)
            target = os.path.abspath(os.path.join(os.path.dirname(name), os.fsdecode(src)))
            own = self._redirected(target)
            is_own = not self._is_allowed(target) and (self._exists(own) or not self._is_there(target))
            return original(own if is_own else target, self.to_write(dst, keep_content=False), *args, **kwargs)

        return symlink

    def _make_link(self, original: Callable[..., None]) -> Callable[..., None]:
        def link(src: Any, dst: Any, *args: Any, **kwargs: Any) -> None:
            name = _name_of(dst)
            by_descriptor = kwargs.get("src_dir_fd") is not None or kwargs.get("dst_dir_fd") is not None
            if name is None or by_descriptor or self._is_allowed(name):
                return original(src, dst, *args, **kwargs)
            if self._is_there(name) or self._exists(self._redirected(name)):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fspath(dst))
            shutil.copy2(src, dst)  # a second name of the user's file would be a way to write into it
            return None

        return link

    def _make_rmdir(self, original: Callable[..., None]) -> Callable[..., None]:
        def rmdir(path: Any, *args: Any, **kwargs: Any) -> None:
            name = _name_of(path)
            if name is None or kwargs.get("dir_fd") is not None or self._is_allowed(name):
                return original(path, *args, **kwargs)
            if self._names_in(name):
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), os.fspath(path))
            if self._is_folder(self._redirected(name)):
                original(self._redirected(name))
            self._hidden.add(name)
            return None

        return rmdir

    def _make_remove(self, original: Callable[..., None]) -> Callable[..., None]:
        def remove(path: Any, *args: Any, **kwargs: Any) -> None:
            name = _name_of(path)
            if name is None or kwargs.get("dir_fd") is not None or self._is_allowed(name):
                return original(path, *args, **kwargs)
            redirected = self._redirected(name)
            if self._exists(redirected) or not self._is_there(name):
                original(redirected)  # raises what the script expects where there is no such file
            elif self._is_folder(name):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
            self._hidden.add(name)
            return None

        return remove

    def _make_rename(self) -> Callable[..., None]:
        def rename(src: Any, dst: Any, *args: Any, **kwargs: Any) -> None:
            source, target = _name_of(src), _name_of(dst)
            if source is None or target is None or (self._is_allowed(source) and self._is_allowed(target)):
                return self._replace(src, dst, *args, **kwargs)
            if not self._is_allowed(target) and self._is_there(target) and self._is_folder(target):
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), os.fspath(dst))
            old, new = self.to_read(src), self.to_write(dst, keep_content=False)
            if self._is_allowed(source) or _name_of(old) != source:
                return self._replace(old, new)  # the script's own file
            if self._is_folder(source):
                shutil.copytree(source, new, dirs_exist_ok=True)
            else:
                shutil.copyfile(source, new)  # the user's file stays where it is, out of the script's sight
            self._hidden.add(source)
            return None

        return rename

    def _make_rmtree(self, original: Callable[..., None]) -> Callable[..., None]:
        def rmtree(path: Any, *args: Any, **kwargs: Any) -> None:
            name = _name_of(path)
            if name is None or self._is_allowed(name):
                return original(path, *args, **kwargs)
            redirected = self._redirected(name)
            if not self._is_there(name) and not self._is_folder(redirected):
                return original(redirected, *args, **kwargs)
            original(redirected, ignore_errors=True)
            self._hide_tree(name)
            return None

        return rmtree

    def _hide_tree(self, name: str) -> None:
        self._hidden.add(name)
        for found in self._listdir(name) if self._is_folder(name) and not os.path.islink(name) else ():
            self._hide_tree(os.path.join(name, found))

    def _make_folders(self, folder: str) -> None:
        if not self._is_folder(folder):
            self._make_folders(os.path.dirname(folder))
            self._mkdir(folder)

    def _is_allowed(self, name: str) -> bool:
        """The innermost folder that is spoken of decides."""
        return _innermost(name, self._allowed) > _innermost(name, self._redirected_folders)

    def _is_special(self, name: str) -> bool:
        """A pipe, socket, device or folder: not a file that could be overwritten."""
        if name in self._hidden:
            return False
        try:
            mode = self._lstat(os.path.realpath(name)).st_mode
        except OSError:
            return False
        return not stat.S_ISREG(mode)

    def _redirected(self, name: str) -> str:
        return os.path.join(self._scratch, name.lstrip(os.sep))

    def _is_there(self, name: str) -> bool:
        """Is there such a thing of the user's, and has the script not removed it?"""
        return name not in self._hidden and self._exists(name)

    def _exists(self, name: str) -> bool:
        try:
            self._lstat(name)
        except OSError:
            return False
        return True

    def _is_folder(self, name: str) -> bool:
        try:
            self._listdir(name)
        except OSError:
            return False
        return True


class _Entries:
    """What `os.scandir` returns: an iterator that is also a context."""

    def __init__(self, entries: Iterator[Any]) -> None:
        self._entries = entries

    def __iter__(self) -> Iterator[Any]:
        return self._entries

    def __next__(self) -> Any:
        return next(self._entries)

    def close(self) -> None:
        pass

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass


def install(scratch: str, *, allowed: tuple[str, ...] = (), redirected: tuple[str, ...] = ()) -> FileSeam:
    """Protect the user's files in this process; once."""
    global active
    if active is None:
        active = FileSeam(os.path.join(scratch, "files"), allowed=(scratch, *allowed), redirected=redirected)
    return active


def _innermost(name: str, folders: tuple[str, ...]) -> int:
    """The length of the innermost of `folders` that `name` is or lies in; -1 when there is none."""
    return max((len(f) for f in folders if name == f or name.startswith(f.rstrip(os.sep) + os.sep)), default=-1)


def _name_of(path: Any) -> str | None:
    """The absolute path, or None for descriptors and file objects."""
    if isinstance(path, bool | int) or not isinstance(path, str | bytes | os.PathLike):
        return None
    return os.path.abspath(os.fsdecode(path))
