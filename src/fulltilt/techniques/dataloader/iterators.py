"""Counts the iterators that loaders make, and keeps the random stream where persistent workers would move it.

A DataLoader draws a seed for its workers from its generator each time it makes an iterator. With persistent workers it
makes one only, so from the second epoch on every later draw, and with it the order of samples, would be another
(mvandenhi/SCBM#6). The draw is made all the same, at the same moment.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter


@dataclass(slots=True)
class Tally:
    """What one loader has made."""

    num_made: int = 0
    num_workers: int = 0


_tallies: weakref.WeakKeyDictionary[DataLoader[Any], Tally] = weakref.WeakKeyDictionary()
_kept: weakref.WeakSet[DataLoader[Any]] = weakref.WeakSet()
_installed = False


def watch(loader: DataLoader[Any]) -> Tally:
    """Count the iterators of this loader from now on."""
    _install()
    return _tallies.setdefault(loader, Tally())


def keep_draws(loader: DataLoader[Any]) -> None:
    """Draw from the generator of this loader in every epoch, as if it made an iterator."""
    _install()
    _kept.add(loader)


def _install() -> None:
    global _installed
    if _installed:
        return
    _installed = True
    original_init: Any = _BaseDataLoaderIter.__init__
    original_reset: Any = _BaseDataLoaderIter._reset

    def __init__(iterator: Any, loader: DataLoader[Any]) -> None:
        original_init(iterator, loader)
        _count(loader)

    def _reset(iterator: Any, loader: DataLoader[Any], first_iter: bool = False) -> None:
        original_reset(iterator, loader, first_iter)
        if not first_iter:
            _count(loader)
            if loader in _kept:
                torch.empty((), dtype=torch.int64).random_(generator=loader.generator)

    iterators: Any = _BaseDataLoaderIter
    iterators.__init__ = __init__
    iterators._reset = _reset


def _count(loader: DataLoader[Any]) -> None:
    tally = _tallies.get(loader)
    if tally is not None:
        tally.num_made += 1
        tally.num_workers = loader.num_workers
