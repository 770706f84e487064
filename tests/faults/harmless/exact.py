"""Changes that leave every bit as it was."""

from __future__ import annotations

import gc
import os
import random

import torch
from torch.utils.checkpoint import checkpoint

from faults.change import harmless
from fulltilt.records.words import Numerics
from fulltilt.technique import Stage

EXACT = {"numerics": Numerics.EXACT}
DROPOUT = ("--dropout", "0.1")


def only(mapping):
    (thing,) = mapping.values()
    return thing


@harmless("transformer", **EXACT)
def nothing(site):
    """Nothing is changed."""


@harmless("images", **EXACT)
def collector_frozen(site):
    """Python's garbage collector is frozen and off."""
    gc.freeze()
    gc.disable()


@harmless("transformer", arguments=DROPOUT, **EXACT)
def blocks_checkpointed(site):
    """Blocks are computed again in the backward pass, with their random state put back."""
    for block in only(site.modules).blocks:
        forward = block.forward
        block.forward = lambda hidden, mask, forward=forward: checkpoint(forward, hidden, mask, use_reentrant=False)


@harmless("perceptron", arguments=DROPOUT, **EXACT)
def saved_tensors_copied(site):
    """What the backward pass needs is copied, as an offload does."""

    def wrapper(call, args, kwargs):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
            return call(*args, **kwargs)

    site.around(only(site.modules), wrapper)


@harmless("images", **EXACT)
def inputs_copied(site):
    """Inputs are copied, as to a device."""
    site.around(only(site.modules), lambda call, args, kwargs: call(*(arg.clone() for arg in args), **kwargs))


@harmless("transformer", **EXACT)
def hooks_installed(site):
    """Every module carries a hook that looks on."""
    for layer in only(site.modules).modules():
        layer.register_forward_hook(lambda layer, args, output: None)


@harmless("perceptron", **EXACT)
def gradients_looked_at(site):
    """Every parameter carries a hook that returns its gradient."""
    for p in only(site.modules).parameters():
        if p.requires_grad:
            p.register_hook(lambda gradient: gradient)


@harmless("accumulation", stage=Stage.ENV, **EXACT)
def gradients_zeroed_in_place(site):
    """zero_grad writes zeros instead of dropping gradients."""
    zero = torch.optim.Optimizer.zero_grad
    torch.optim.Optimizer.zero_grad = lambda self, set_to_none=True: zero(self, set_to_none=False)


@harmless("accumulation", stage=Stage.ENV, **EXACT)
def batches_read_ahead(site):
    """The loader's next batch is fetched before it is asked for."""
    from torch.utils.data import dataloader

    fetch = dataloader._BaseDataLoaderIter.__next__
    ahead: dict = {}

    def read_ahead(iterator):
        if id(iterator) not in ahead:
            ahead[id(iterator)] = _fetched(fetch, iterator)
        batch = ahead.pop(id(iterator))
        if batch is None:
            raise StopIteration
        ahead[id(iterator)] = _fetched(fetch, iterator)
        return batch

    dataloader._BaseDataLoaderIter.__next__ = read_ahead


@harmless("accumulation", stage=Stage.DATA, **EXACT)
def workers_for_a_map_dataset(site):
    """Two workers read a dataset that draws nothing."""
    (loader,) = site.loaders
    object.__setattr__(loader, "num_workers", 2)
    object.__setattr__(loader, "prefetch_factor", 2)


@harmless("accumulation", stage=Stage.DATA, **EXACT)
def collated_otherwise(site):
    """Batches are indexed at once instead of being stacked."""
    (loader,) = site.loaders
    tensors = loader.dataset.tensors
    loader.dataset.__class__ = type("Batched", (type(loader.dataset),), {"__getitems__": lambda self, indices: indices})
    object.__setattr__(loader, "collate_fn", lambda indices: [tensor[indices] for tensor in tensors])


@harmless("transformer", stage=Stage.ENV, **EXACT)
def anomalies_looked_for(site):
    """Anomaly detection is on."""
    torch.autograd.set_detect_anomaly(True)


@harmless("perceptron", stage=Stage.ENV, **EXACT)
def denormals_flushed(site):
    """Denormal numbers are taken for zero; there are none."""
    torch.set_flush_denormal(True)


@harmless("images", stage=Stage.ENV, **EXACT)
def deterministic_algorithms(site):
    """Deterministic algorithms are asked for."""
    torch.use_deterministic_algorithms(True)


@harmless("transformer", **EXACT)
def parameters_moved_in_memory(site):
    """Parameters lie in one flat piece of memory."""
    model = only(site.modules)
    flat = torch.cat([p.detach().flatten() for p in model.parameters()])
    start = 0
    for p in model.parameters():
        p.data = flat[start : start + p.numel()].view_as(p)
        start += p.numel()


@harmless("transformer", arguments=DROPOUT, **EXACT)
def streams_put_back(site):
    """A trial call draws random numbers, and all streams are put back."""
    state, python = torch.get_rng_state(), random.getstate()
    torch.rand(7)
    random.random()
    torch.set_rng_state(state)
    random.setstate(python)


@harmless("perceptron", **EXACT)
def trial_call_taken_back(site):
    """The model is called once for trial; buffers and streams are put back."""
    model = only(site.modules)
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    state = torch.get_rng_state()
    model.forward(torch.randn(64, 20))
    torch.set_rng_state(state)
    for name, buffer in model.named_buffers():
        buffer.copy_(buffers[name])


@harmless("adversarial", **EXACT)
def copied_and_thrown_away(site):
    """Each model is deep-copied, and the copy trained on its own."""
    import copy

    for model in site.modules.values():
        twin = copy.deepcopy(model)
        optimizer = torch.optim.SGD(twin.parameters(), lr=0.1)
        for p in twin.parameters():
            p.grad = torch.ones_like(p)
        del optimizer


@harmless("double", stage=Stage.ENV, **EXACT)
def environment_set(site):
    """Environment variables that the allocator reads are set."""
    os.environ["MALLOC_ARENA_MAX"] = "2"
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"


@harmless("scaled", stage=Stage.ENV, **EXACT)
def profiled(site):
    """Every step carries a name for the profiler."""
    step = torch.optim.AdamW.step

    def named(optimizer, closure=None):
        with torch.profiler.record_function("step"):
            return step(optimizer, closure)

    torch.optim.AdamW.step = named


@harmless("stream", **EXACT)
def module_call_replaced(site):
    """The model's forward is called through another function."""
    model = only(site.modules)
    forward = model.forward
    site.around(model, lambda call, args, kwargs: forward(*args, **kwargs))


@harmless("transformer", **EXACT)
def compiled_by_the_eager_backend(site):
    """Blocks are traced by torch.compile and run as they are."""
    for block in only(site.modules).blocks:
        block.compile(backend="eager")


@harmless("images", stage=Stage.DATA, **EXACT)
def dataset_moved_in_memory(site):
    """The stored images are copied to another place, as into pinned memory."""
    (loader,) = site.loaders
    loader.dataset.images = loader.dataset.images.clone()


def _fetched(fetch, iterator):
    try:
        return fetch(iterator)
    except StopIteration:
        return None
