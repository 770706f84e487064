"""Loading in other processes, in the worker: set on the loader itself, before it is iterated for the first time."""

from __future__ import annotations

import multiprocessing
import pickle
import shutil
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from fulltilt.numerics.nested import tensors_in
from fulltilt.numerics.rewind import streams_point
from fulltilt.technique import Applied, NoEffect, Site
from fulltilt.techniques.dataloader import iterators
from fulltilt.techniques.dataloader.spec import DataloaderOptions

_SHARED_MEMORY = "/dev/shm"
_SHARE_OF_SHARED_MEMORY = 0.5


def apply(site: Site, options: DataloaderOptions) -> Applied | NoEffect:
    """Set the options on the site's loaders."""
    done: list[str] = []
    reasons: list[str] = []
    tallies = []
    for loader in site.loaders:
        reason = why_not(loader, options)
        if reason is not None:
            reasons.append(reason)
            continue
        tallies.append(iterators.watch(loader))
        done.append(_set(loader, options))
    if not done:
        return NoEffect(reason="; ".join(dict.fromkeys(reasons)) or "no DataLoader")
    return Applied(detail="; ".join(dict.fromkeys(done)), engaged=lambda: _proof(tallies))


def why_not(loader: DataLoader[Any], options: DataloaderOptions) -> str | None:
    """Why the options do not fit this loader."""
    if isinstance(loader.dataset, IterableDataset):
        return "an IterableDataset would be repeated by each worker"
    if isinstance(loader.dataset, TensorDataset) and not options.in_memory:
        return "the data lies in memory as tensors, workers would only copy it"
    wanted = wanted_settings(loader, options)
    if all(getattr(loader, name) == value for name, value in wanted.items()):
        return "the loader is like that already"
    if not wanted["num_workers"] or wanted["num_workers"] == loader.num_workers:
        return None
    return _process_reason(loader, wanted)


def wanted_settings(loader: DataLoader[Any], options: DataloaderOptions) -> dict[str, Any]:
    """The settings of the loader under the options, by the rules that its constructor has."""
    num_workers = loader.num_workers if options.num_workers is None else options.num_workers
    prefetch = options.prefetch_factor or loader.prefetch_factor or 2
    persistent = loader.persistent_workers if options.persistent_workers is None else options.persistent_workers
    pin_memory = loader.pin_memory if options.pin_memory is None else options.pin_memory
    return {
        "num_workers": num_workers,
        "prefetch_factor": prefetch if num_workers else None,
        "persistent_workers": persistent and num_workers > 0,
        "pin_memory": pin_memory if torch.accelerator.is_available() else loader.pin_memory,
    }


def _set(loader: DataLoader[Any], options: DataloaderOptions) -> str:
    wanted = wanted_settings(loader, options)
    if wanted["persistent_workers"] and not loader.persistent_workers:
        iterators.keep_draws(loader)
    changed = {name: value for name, value in wanted.items() if getattr(loader, name) != value}
    # DataLoader refuses some of these once it is made, as an iterator may exist; here none does yet
    loader.__dict__.update(changed)
    return ", ".join(f"{name}={value}" for name, value in changed.items())


def _process_reason(loader: DataLoader[Any], wanted: dict[str, Any]) -> str | None:
    if multiprocessing.get_start_method() != "fork" and not _can_be_pickled(loader):
        return "the dataset cannot be pickled, and workers are not forked here"
    sample = _sample(loader)
    if any(tensor.device.type not in ("cpu", "meta") for tensor in sample):
        return "the dataset returns tensors on a device, which worker processes cannot make"
    sample_bytes = sum(tensor.numel() * tensor.element_size() for tensor in sample)
    needed = sample_bytes * (loader.batch_size or 1) * wanted["num_workers"] * wanted["prefetch_factor"]
    free = _free_shared_memory()
    if free is not None and needed > free * _SHARE_OF_SHARED_MEMORY:
        return f"batches of all workers need {needed / 2**20:.0f} MiB of {_SHARED_MEMORY}, {free / 2**20:.0f} are free"
    return None


def _sample(loader: DataLoader[Any]) -> list[torch.Tensor]:
    """The tensors of one sample; none where the dataset does not go by numbers. No random stream moves on.

    A dataset that opens its file at the first sample must do so in each worker: what it has opened here is forgotten,
    or all workers would share one descriptor with one position.
    """
    restore = streams_point()
    attributes = [(dataset, dict(vars(dataset))) for dataset in _nested(loader.dataset) if hasattr(dataset, "__dict__")]
    try:
        return tensors_in(loader.dataset[0])
    except Exception:  # a dataset of its own kind: the trial will tell
        return []
    finally:
        restore()
        for dataset, before in attributes:
            dataset.__dict__.clear()
            dataset.__dict__.update(before)


def _nested(dataset: Any) -> list[Any]:
    """The dataset and those that it wraps (Subset, ConcatDataset)."""
    inner = [*getattr(dataset, "datasets", ()), *filter(None, [getattr(dataset, "dataset", None)])]
    return [dataset, *(found for wrapped in inner for found in _nested(wrapped))]


def _can_be_pickled(loader: DataLoader[Any]) -> bool:
    try:
        pickle.dumps((loader.dataset, loader.collate_fn, loader.worker_init_fn))
    except Exception:
        return False
    return True


def _free_shared_memory() -> int | None:
    try:
        return shutil.disk_usage(_SHARED_MEMORY).free
    except OSError:
        return None


def _proof(tallies: list[iterators.Tally]) -> str | None:
    made = sum(tally.num_made for tally in tallies)
    workers = sorted({tally.num_workers for tally in tallies if tally.num_made})
    return f"{made} iterations begun with {', '.join(map(str, workers))} workers" if made else None
