"""Faults of random numbers. A technique that draws other ones must be right in everything else."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from faults.change import fault
from faults.wrong.stretching import stretch_steps
from fulltilt.technique import Stage

DROPOUT = ("--dropout", "0.1")
CHANGED = ("draws", "losses", "updates, all", "updates, each", "mean gradient norm")


@fault("perceptron", arguments=DROPOUT, changes_draws=True, stage=Stage.ENV, shown_by=CHANGED, names="step|norm|draws")
def dropout_off(site):
    """Dropout does nothing."""
    F.dropout = lambda input, p=0.5, training=True, inplace=False: input


@fault("perceptron", arguments=DROPOUT, changes_draws=True, shown_by=CHANGED, names="step|norm")
def dropout_of_another_rate(site):
    """Dropout drops three times as much."""
    (model,) = site.modules.values()
    for layer in model:
        if isinstance(layer, nn.Dropout):
            layer.p = 0.3


@fault("perceptron", arguments=DROPOUT, changes_draws=True, stage=Stage.ENV, shown_by=CHANGED, names="step|norm|draws")
def dropout_seeds_shared(site):
    """All layers drop the same elements."""
    dropout, steps = F.dropout, [0]

    def shared(input, p=0.5, training=True, inplace=False):
        state = torch.get_rng_state()
        torch.manual_seed(steps[0])
        output = dropout(input, p, training)
        torch.set_rng_state(state)
        return output

    F.dropout = shared
    site.after_step(lambda num_steps: steps.__setitem__(0, num_steps))


@fault("perceptron", arguments=DROPOUT, changes_draws=True, stage=Stage.ENV, shown_by=CHANGED, names="step|norm|draws")
def dropout_mask_frozen(site):
    """Every step drops the same elements."""
    dropout, masks = F.dropout, {}

    def frozen(input, p=0.5, training=True, inplace=False):
        key = input.shape
        if key not in masks:
            masks[key] = dropout(torch.ones_like(input), p, training)
        return input * masks[key] if training else input

    F.dropout = frozen


@fault("perceptron", arguments=DROPOUT, changes_draws=True, stage=Stage.ENV, shown_by=CHANGED, names="step|norm")
def dropout_not_rescaled(site):
    """What is kept is not divided by the share that is kept."""
    dropout = F.dropout
    F.dropout = lambda input, p=0.5, training=True, inplace=False: dropout(input, p, training) * (1 - p)


@fault("transformer", arguments=DROPOUT, changes_draws=True, stage=Stage.ENV, shown_by=CHANGED, names="step|norm|draws")
def attention_dropout_lost(site):
    """Attention weights are not dropped any more; the other dropouts are."""
    attend = F.scaled_dot_product_attention
    F.scaled_dot_product_attention = lambda *args, dropout_p=0.0, **kwargs: attend(*args, dropout_p=0.0, **kwargs)


@fault("perceptron", arguments=DROPOUT, stage=Stage.ENV, shown_by=("first gradients, each", "losses"), names="step|0")
def recomputed_with_another_mask(site):
    """The backward pass uses another mask than the forward pass, as a recomputation without its random state does."""

    class Forgetful(torch.autograd.Function):
        @staticmethod
        def forward(ctx, input, p):
            mask = torch.bernoulli(torch.full_like(input, 1 - p)) / (1 - p)
            ctx.p = p
            return input * mask

        @staticmethod
        def backward(ctx, gradient):
            return gradient * torch.bernoulli(torch.full_like(gradient, 1 - ctx.p)) / (1 - ctx.p), None

    F.dropout = lambda input, p=0.5, training=True, inplace=False: Forgetful.apply(input, p) if training else input


@fault("adversarial", shown_by=("generators", "values of inputs", "losses"), names="noise_generator|step")
def private_generator_not_restored(site):
    """A forward pass is tried out, and the script's own generator is not put back."""
    import inspect

    tried = []

    def wrapper(call, args, kwargs):
        if not tried:
            frame = next(f for f in inspect.stack() if "noise_generator" in f.frame.f_locals)
            tried.append(torch.randn(1, generator=frame.frame.f_locals["noise_generator"]))
        return call(*args, **kwargs)

    site.around(next(iter(site.modules.values())), wrapper)


@fault("adversarial", shown_by=("draws", "values of inputs", "losses"), names="random numbers|step")
def global_stream_disturbed(site):
    """The technique draws a number for itself."""
    torch.rand(1)


@fault("images", stage=Stage.ENV, shown_by=("draws", "values of inputs", "losses"), names="random numbers|step")
def base_seed_not_drawn(site):
    """The iterator of the DataLoader no longer draws its base seed, so that later shuffles differ."""
    from torch.utils.data import dataloader

    init = dataloader._BaseDataLoaderIter.__init__

    def without(iterator, loader):
        state = torch.get_rng_state()
        init(iterator, loader)
        torch.set_rng_state(state)

    dataloader._BaseDataLoaderIter.__init__ = without


@fault(
    "perceptron", arguments=DROPOUT, changes_draws=True, shown_by=("updates, scale", "updates, each"), names="long|norm"
)
def learning_rate_off_among_other_draws(site):
    """Steps are a tenth too long, in a technique that draws other random numbers."""
    stretch_steps(site, lambda step: 1.1)


@fault("perceptron", arguments=DROPOUT, changes_draws=True, shown_by="first gradients, each", names="6.weight")
def gradient_off_among_other_draws(site):
    """One gradient is scaled by 1.01, in a technique that draws other random numbers."""
    (model,) = site.modules.values()
    model[6].weight.register_hook(lambda gradient: gradient * 1.01)
