"""Changes that draw other random numbers of the same distribution, and do nothing else.

Where the site asks for it, each draws those of the untouched script, as a technique must.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import RandomSampler

from faults.change import BFLOAT16, harmless
from faults.harmless.rounding import autocast, only
from fulltilt.records.words import Numerics
from fulltilt.technique import Stage

DROPOUT = ("--dropout", "0.1")
DRAWS = {"changes_draws": True}
real_dropout, real_attention = F.dropout, F.scaled_dot_product_attention


def replace_dropout(site, drop):
    """`drop(input, p)` in the place of dropout in training, unless the script's own draws are asked for."""
    if not site.tie_draws:
        F.dropout = lambda input, p=0.5, training=True, inplace=False: drop(input, p) if training and p else input


def masked(input, keep, p):
    return input * keep.to(input.dtype) / (1 - p)


def other_stream(site, seed=77):
    """Other numbers from the first training call on."""
    if not site.tie_draws:
        torch.manual_seed(seed)


@harmless("perceptron", arguments=DROPOUT, numerics=Numerics.EXACT, **DRAWS)
def reseeded(site):
    """The stream is seeded anew."""
    other_stream(site)


@harmless("transformer", arguments=DROPOUT, **DRAWS)
def reseeded_transformer(site):
    """The stream is seeded anew, under dropout of attention too."""
    other_stream(site, 78)


@harmless("images", arguments=DROPOUT, numerics=Numerics.EXACT, **DRAWS)
def reseeded_with_flips(site):
    """The stream is seeded anew: other masks, other flips, another order."""
    other_stream(site, 79)


@harmless("adversarial", **DRAWS)
def reseeded_gan(site):
    """The stream of the real data is seeded anew."""
    other_stream(site, 80)


@harmless("stream", **DRAWS)
def reseeded_noise(site):
    """The noise on the data is another."""
    other_stream(site, 81)


@harmless("perceptron", arguments=DROPOUT, stage=Stage.ENV, **DRAWS)
def dropout_from_a_generator(site):
    """Dropout draws from a generator of its own."""
    generator = torch.Generator().manual_seed(5)
    replace_dropout(site, lambda input, p: masked(input, torch.rand(input.shape, generator=generator) >= p, p))


@harmless("perceptron", arguments=DROPOUT, stage=Stage.ENV, **DRAWS)
def dropout_by_bernoulli(site):
    """Dropout draws its mask as Bernoulli numbers, and scales it first."""
    replace_dropout(site, lambda input, p: input * (torch.bernoulli(torch.full_like(input, 1 - p)) / (1 - p)))


@harmless("perceptron", arguments=DROPOUT, stage=Stage.ENV, **DRAWS)
def dropout_by_counter(site):
    """Dropout hashes a counter and the position, as fused kernels do."""
    calls = [0]

    def drop(input, p):
        calls[0] += 1
        words = torch.arange(input.numel()) * 2654435761 + calls[0] * 40503
        words = ((words ^ (words >> 15)) * 2246822519) & 0xFFFFFFFF
        words = ((words ^ (words >> 13)) * 3266489917) & 0xFFFFFFFF
        return masked(input, ((words ^ (words >> 16)) / 2**32 >= p).view_as(input), p)

    replace_dropout(site, drop)


@harmless("perceptron", arguments=DROPOUT, stage=Stage.ENV, **DRAWS)
def dropout_in_float64(site):
    """Dropout draws in float64."""
    replace_dropout(site, lambda input, p: masked(input, torch.rand(input.shape, dtype=torch.float64) >= p, p))


@harmless("transformer", arguments=DROPOUT, stage=Stage.ENV, **DRAWS)
def dropout_transposed(site):
    """Dropout draws in another order of elements."""

    def drop(input, p):
        turned = input.transpose(0, -1)
        return masked(input, (torch.rand(turned.shape) >= p).transpose(0, -1), p)

    replace_dropout(site, drop)


@harmless("transformer", arguments=DROPOUT, stage=Stage.ENV, **DRAWS)
def dropout_bits_shared(site):
    """One random integer serves four elements, eight bits each."""

    def drop(input, p):
        quarter = -(-input.numel() // 4)
        words = torch.randint(2**32, (quarter,))
        bits = torch.stack([words >> shift & 0xFF for shift in (0, 8, 16, 24)], 1).flatten()[: input.numel()]
        keep = bits >= round(p * 256)
        return masked(input, keep.view_as(input), p)

    replace_dropout(site, drop)


@harmless("transformer", arguments=DROPOUT, stage=Stage.ENV, **DRAWS)
def attention_dropout_by_hand(site):
    """Attention in plain steps draws its own dropout."""
    if site.tie_draws:
        return

    def attend(query, key, value, attn_mask=None, dropout_p=0.0):
        scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
        weights = scores.masked_fill(~attn_mask, float("-inf")).softmax(-1)
        return real_dropout(weights, dropout_p) @ value

    F.scaled_dot_product_attention = attend


@harmless("transformer", arguments=DROPOUT, rounding=BFLOAT16, **DRAWS)
def autocast_and_other_draws(site):
    """bfloat16 autocast, and the stream seeded anew."""
    other_stream(site, 82)
    autocast(site, torch.bfloat16)


@harmless("transformer", arguments=DROPOUT, stage=Stage.OPTIMIZER, **DRAWS)
def fused_and_other_draws(site):
    """AdamW in one kernel, and the stream seeded anew."""
    other_stream(site, 83)
    for group in only(site.optimizers).param_groups:
        group["fused"] = True


@harmless("images", stage=Stage.ENV, **DRAWS)
def order_by_another_seed(site):
    """The order of the data is shuffled by a generator of its own."""
    if site.tie_draws:
        return
    generator = torch.Generator().manual_seed(9)

    def order(sampler):
        return iter(torch.randperm(len(sampler.data_source), generator=generator).tolist())

    RandomSampler.__iter__ = order


@harmless("images", stage=Stage.DATA, **DRAWS)
def flips_in_workers(site):
    """Two workers flip images by their own seeds."""
    if site.tie_draws:
        return
    (loader,) = site.loaders
    object.__setattr__(loader, "num_workers", 2)
    object.__setattr__(loader, "prefetch_factor", 2)


@harmless("images", stage=Stage.ENV, **DRAWS)
def base_seed_drawn_twice(site):
    """Each iterator of the loader draws once more, as persistent workers draw less."""
    if site.tie_draws:
        return
    from torch.utils.data import dataloader

    init = dataloader._BaseDataLoaderIter.__init__

    def twice(iterator, loader):
        torch.rand(1)
        init(iterator, loader)

    dataloader._BaseDataLoaderIter.__init__ = twice


@harmless("perceptron", arguments=DROPOUT, **DRAWS)
def numbers_left_over(site):
    """Every call draws some numbers for nothing."""
    if not site.tie_draws:
        site.around(only(site.modules), lambda call, args, kwargs: (torch.rand(3), call(*args, **kwargs))[1])


@harmless("perceptron", arguments=DROPOUT, **DRAWS)
def draws_made_ahead(site):
    """Masks of a step are drawn at once, the last layer's first."""
    if site.tie_draws:
        return
    layers = [layer for layer in only(site.modules) if isinstance(layer, nn.Dropout)]
    masks: dict = {}

    def wrapper(call, args, kwargs):
        for layer in reversed(layers):
            masks[layer] = torch.rand(64, 64) >= layer.p
        return call(*args, **kwargs)

    for layer in layers:
        layer.forward = lambda input, layer=layer: masked(input, masks[layer], layer.p)
    site.around(only(site.modules), wrapper)


@harmless("perceptron", arguments=DROPOUT, stage=Stage.ENV, **DRAWS)
def nothing_drawn_otherwise(site):
    """It may draw other numbers, and does not."""


@harmless("perceptron", **DRAWS)
def nothing_to_draw(site):
    """It may draw other numbers in a script that draws none."""


@harmless("double", **DRAWS)
def other_stream_in_float64(site):
    """The stream is seeded anew in a script of float64 that has a generator of its own."""
    other_stream(site, 84)
