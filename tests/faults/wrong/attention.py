"""Faults of attention."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from faults.change import BFLOAT16, fault
from fulltilt.technique import Stage

SEEN = ("losses", "first gradients, each", "finite values")


def replace(attention):
    F.scaled_dot_product_attention = attention


real = F.scaled_dot_product_attention


@fault("transformer", rounding=BFLOAT16, stage=Stage.ENV, shown_by=SEEN, names="step|norm|finite")
def mask_inverted(site):
    """What is masked is attended to, and nothing else (as far as there is anything)."""

    def inverted(query, key, value, attn_mask=None, dropout_p=0.0):
        mask = ~attn_mask
        mask = mask | ~mask.any(-1, keepdim=True)
        return real(query, key, value, attn_mask=mask, dropout_p=dropout_p)

    replace(inverted)


@fault("transformer", rounding=BFLOAT16, stage=Stage.ENV, shown_by=SEEN, names="step|norm")
def padding_mask_ignored(site):
    """Padding is attended to, as nothing but the causal mask is applied."""
    replace(lambda q, k, v, attn_mask=None, dropout_p=0.0: real(q, k, v, is_causal=True, dropout_p=dropout_p))


@fault("transformer", rounding=BFLOAT16, stage=Stage.ENV, shown_by=SEEN, names="step|norm")
def causal_mask_lost(site):
    """Positions see what follows."""

    def everything(query, key, value, attn_mask=None, dropout_p=0.0):
        return real(query, key, value, attn_mask=attn_mask[..., -1:, :], dropout_p=dropout_p)

    replace(everything)


@fault("transformer", stage=Stage.ENV, shown_by=("finite values",), names="finite")
def masked_rows_give_nan(site):
    """A row that is masked as a whole gives nan: padding is masked for queries too, by a softmax of -inf."""

    def naive(query, key, value, attn_mask=None, dropout_p=0.0):
        mask = attn_mask & attn_mask[..., -1:, :].transpose(-1, -2)
        scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
        return scores.masked_fill(~mask, float("-inf")).softmax(-1) @ value

    replace(naive)


@fault("transformer", rounding=BFLOAT16, stage=Stage.ENV, shown_by=SEEN, names="step|norm")
def scale_missing(site):
    """Scores are not divided by the square root of the width."""
    replace(lambda q, k, v, attn_mask=None, dropout_p=0.0: real(q, k, v, attn_mask=attn_mask, scale=1.0))


@fault("transformer", stage=Stage.ENV, shown_by=SEEN, names="step|norm|0")
def additive_mask_too_weak(site):
    """Masked scores are lowered by 4 instead of being excluded."""

    def weak(query, key, value, attn_mask=None, dropout_p=0.0):
        return real(query, key, value, attn_mask=torch.where(attn_mask, 0.0, -4.0), dropout_p=dropout_p)

    replace(weak)


@fault("transformer", rounding=BFLOAT16, stage=Stage.ENV, shown_by=SEEN, names="step|norm")
def heads_mixed_up(site):
    """Keys of one head meet queries of the other."""
    replace(lambda q, k, v, attn_mask=None, dropout_p=0.0: real(q, k.flip(1), v, attn_mask=attn_mask))
