"""Faults of data: which samples come, in which order, how often."""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader, SequentialSampler, dataloader

from faults.change import BFLOAT16, fault
from fulltilt.technique import Stage


def replace_collate(site, change):
    (loader,) = site.loaders
    collate = loader.collate_fn
    object.__setattr__(loader, "collate_fn", lambda samples: change(collate, samples))


@fault("images", stage=Stage.DATA, shown_by=("data loaders", "inputs"), names="batches|step 6")
def last_batch_dropped(site):
    """The last, partial batch of an epoch is dropped."""
    (loader,) = site.loaders
    loader.batch_sampler.drop_last = True


@fault("images", stage=Stage.DATA, shown_by="inputs", names="step 6")
def last_batch_padded(site):
    """The last, partial batch is filled up with copies of its first sample."""
    replace_collate(site, lambda collate, samples: collate(samples + samples[:1] * (16 - len(samples))))


@fault(
    "stream", stage=Stage.DATA, changes_draws=True, shown_by=("values of inputs", "distinct samples"), names="step 1"
)
def stream_duplicated_over_workers(site):
    """Two workers read the whole stream each."""
    (loader,) = site.loaders
    with_workers(loader, 2)


@fault(
    "images",
    stage=Stage.ENV,
    changes_draws=True,
    num_steps=10,
    shown_by=("distinct samples", "inputs"),
    names="distinct|step",
)
def shuffles_only_half(site):
    """Only the first half of the data comes, twice."""
    from torch.utils.data import RandomSampler

    original = RandomSampler.__iter__

    def halved(sampler):
        order = list(original(sampler))
        return iter(order[:45] + order[:45])

    RandomSampler.__iter__ = halved


@fault("stream", stage=Stage.DATA, shown_by=("values of inputs", "draws"), names="step 1|random")
def worker_seeds_equal(site):
    """Two workers draw the same noise."""
    (loader,) = site.loaders
    with_workers(loader, 2)
    object.__setattr__(loader, "worker_init_fn", lambda worker: torch.manual_seed(0))


@fault("images", stage=Stage.DATA, shown_by="values of inputs", names="step 1")
def order_changed(site):
    """The data come in the order in which they lie."""
    (loader,) = site.loaders
    loader.batch_sampler.sampler = SequentialSampler(loader.dataset)


@fault("images", stage=Stage.ENV, shown_by=("values of inputs", "draws"), names="step|random")
def augmentation_frozen(site):
    """The random flip of a sample is kept for ever, as by a cache behind it."""
    state: dict[int, bool] = {}
    real = torch.rand

    def frozen(*args, **kwargs):
        return real(*args, **kwargs) * 0.0 if args == ((),) else real(*args, **kwargs)

    torch.rand = frozen
    state.clear()


@fault("images", stage=Stage.ENV, shown_by="values of inputs", names="step 2")
def batch_repeated(site):
    """Every batch comes twice, and every other one never."""
    fetch = dataloader._BaseDataLoaderIter.__next__
    kept: list = []

    def repeated(iterator):
        batch = fetch(iterator)
        if kept and kept[0] is not None:
            batch, kept[0] = kept[0], None
        else:
            kept[:] = [batch]
        return batch

    dataloader._BaseDataLoaderIter.__next__ = repeated


@fault("images", stage=Stage.DATA, shown_by=("losses", "first gradients, each"), names="step|0")
def labels_shifted(site):
    """Labels belong to the neighbours of their images."""

    def shifted(collate, samples):
        images, labels = collate(samples)
        return images, labels.roll(1)

    replace_collate(site, shifted)


@fault("images", stage=Stage.DATA, shown_by="losses", names="step 4")
def labels_shifted_once(site):
    """The labels of one batch belong to other images."""
    calls = [0]

    def shifted(collate, samples):
        images, labels = collate(samples)
        calls[0] += 1
        return images, labels.roll(3) if calls[0] == 4 else labels

    replace_collate(site, shifted)


@fault("images", stage=Stage.DATA, shown_by="values of inputs", names="step 1")
def inputs_in_bfloat16(site):
    """Inputs are rounded to bfloat16 on their way, by a technique that claims float32."""

    def rounded(collate, samples):
        images, labels = collate(samples)
        return images.bfloat16().float(), labels

    replace_collate(site, rounded)


@fault("images", stage=Stage.DATA, rounding=BFLOAT16, shown_by="inputs", names="float64|bfloat16")
def inputs_of_another_dtype(site):
    """Inputs come in bfloat16."""

    def rounded(collate, samples):
        images, labels = collate(samples)
        return images.bfloat16(), labels

    replace_collate(site, rounded)
    torch.nn.functional.conv2d = _in_float(torch.nn.functional.conv2d)
    torch.nn.Conv2d._conv_forward = _in_float_method(torch.nn.Conv2d._conv_forward)


@fault("accumulation", stage=Stage.DATA, shown_by=("data loaders", "values of inputs"), names="samples|step")
def sample_lost(site):
    """The first sample of the dataset is never seen."""
    (loader,) = site.loaders
    dataset = loader.dataset
    dataset.tensors = tuple(tensor[1:] for tensor in dataset.tensors)


@fault("accumulation", stage=Stage.DATA, shown_by="inputs", names="step 1")
def batch_size_changed(site):
    """Batches are twice as large, unasked."""
    (loader,) = site.loaders
    loader.batch_sampler.batch_size = 32


def with_workers(loader: DataLoader, number: int) -> None:
    object.__setattr__(loader, "num_workers", number)
    object.__setattr__(loader, "prefetch_factor", 2)


def _in_float(function):
    return lambda input, *args, **kwargs: function(input.float(), *args, **kwargs)


def _in_float_method(method):
    return lambda self, input, weight, bias: method(self, input.float(), weight, bias)
