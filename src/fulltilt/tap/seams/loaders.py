"""Seam on DataLoader: told before a loader is iterated for the first time, and how long its batches are waited for."""

import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from fulltilt.tap.seams.attribute import Replacement


class LoaderSeam:
    """`first_iter(loader)` is called just before the first `iter(loader)` of each loader."""

    def __init__(self, first_iter: Callable[[DataLoader[Any]], None]) -> None:
        original = DataLoader.__iter__
        seen: weakref.WeakSet[DataLoader[Any]] = weakref.WeakSet()

        def __iter__(loader: DataLoader[Any]) -> Iterator[Any]:
            if loader not in seen:
                seen.add(loader)
                first_iter(loader)
            return original(loader)

        self._replacement = Replacement(DataLoader, "__iter__", __iter__)

    def undo(self) -> None:
        self._replacement.undo()


class WaitSeam:
    """Adds up the seconds that the training loop waits for the next batch."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.num_batches = 0
        original = _BaseDataLoaderIter.__next__

        def __next__(iterator: Any) -> Any:
            start = time.perf_counter()
            try:
                return original(iterator)
            finally:
                self.seconds += time.perf_counter() - start
                self.num_batches += 1

        self._replacement = Replacement(_BaseDataLoaderIter, "__next__", __next__)

    def undo(self) -> None:
        self._replacement.undo()
