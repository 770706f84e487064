"""Loading in other processes, in the worker: set on the loader itself, before it is iterated for the first time."""

from __future__ import annotations

import multiprocessing
import pickle
import shutil
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, _DatasetKind

from fulltilt.technique import Applied, NoEffect, Site
from fulltilt.techniques.dataloader import copies, iterators, sample
from fulltilt.techniques.dataloader.spec import DataloaderOptions

_SHARED_MEMORY = "/dev/shm"
_SHARE_OF_SHARED_MEMORY = 0.5


def apply(site: Site, options: DataloaderOptions) -> Applied | NoEffect:
    """Set the options on the site's loaders."""
    done: list[str] = []
    reasons: list[str] = []
    tallies = []
    for loader in site.loaders:
        reason = why_not(loader, options, tie_draws=site.tie_draws)
        if reason is not None:
            reasons.append(reason)
            continue
        tallies.append(iterators.watch(loader))
        done.append(_set(loader, options))
    if not done:
        return NoEffect(reason="; ".join(dict.fromkeys(reasons)) or "no DataLoader")
    return Applied(detail="; ".join(dict.fromkeys(done)), engaged=lambda: _proof(tallies))


def why_not(loader: DataLoader[Any], options: DataloaderOptions, *, tie_draws: bool = False) -> str | None:
    """Why the options do not fit this loader, or would draw other random numbers where it is asked not to."""
    if isinstance(loader.dataset, IterableDataset) or loader._dataset_kind != _DatasetKind.Map:
        return "an IterableDataset would be repeated by each worker"
    if isinstance(loader.dataset, TensorDataset) and not options.in_memory:
        return "the data lies in memory as tensors, workers would only copy it"
    wanted = wanted_settings(loader, options)
    if all(getattr(loader, name) == value for name, value in wanted.items()):
        return "the loader is like that already"
    if not wanted["num_workers"] or wanted["num_workers"] == loader.num_workers:
        return None
    if tie_draws and sample.look(loader).draws:
        return "samples are drawn at random, by each worker from a stream of its own"
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
    if _start_method(loader) != "fork" and not _can_be_pickled(loader):
        return "the dataset cannot be pickled, and workers are not forked here"
    seen = sample.look(loader)
    if any(tensor.device.type not in ("cpu", "meta") for tensor in (*seen.tensors, *seen.collated)):
        return "the dataset returns tensors on a device, which worker processes cannot make"
    if seen.counters:
        return (
            f"the dataset counts while it is read ({', '.join(seen.counters)}), and workers would each count their own"
        )
    return _shared_memory_reason(loader, wanted, seen) or copies.why_not(
        sample.nested(loader.dataset), wanted["num_workers"]
    )


def _shared_memory_reason(loader: DataLoader[Any], wanted: dict[str, Any], seen: sample.Sample) -> str | None:
    sample_bytes = sum(tensor.numel() * tensor.element_size() for tensor in seen.tensors)
    needed = sample_bytes * _batch_size(loader) * wanted["num_workers"] * wanted["prefetch_factor"]
    free = _free_shared_memory()
    if free is None or needed <= free * _SHARE_OF_SHARED_MEMORY:
        return None
    return f"batches of all workers need {needed / 2**20:.0f} MiB of {_SHARED_MEMORY}, {free / 2**20:.0f} are free"


def _batch_size(loader: DataLoader[Any]) -> int:
    """Of a loader with a batch sampler of the script's own: the average."""
    if loader.batch_size is not None:
        return loader.batch_size
    try:
        return -(-len(loader.dataset) // len(loader.batch_sampler))  # type: ignore[arg-type]
    except (TypeError, ZeroDivisionError):
        return 1


def _start_method(loader: DataLoader[Any]) -> str:
    """How its workers would be started. Asked so that the script may still choose another method afterwards."""
    context: Any = loader.multiprocessing_context
    if context is not None:
        return str(context.get_start_method())
    chosen = multiprocessing.get_start_method(allow_none=True)
    return chosen or multiprocessing.get_all_start_methods()[0]


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
