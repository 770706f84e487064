"""Precision of float32 products in the worker.

Convolutions on CUDA are in TensorFloat32 by torch's own default.
"""

from __future__ import annotations

import torch

from fulltilt.technique import Applied, NoEffect, Site
from fulltilt.techniques.matmul_precision import switch
from fulltilt.techniques.matmul_precision.spec import MatmulPrecisionOptions

_FLOAT32_ERROR = 2.0**-15
"""Relative error that a float32 product of this size never has, and one of TensorFloat32 factors always has."""


def apply(site: Site, options: MatmulPrecisionOptions) -> Applied | NoEffect:
    """Set the precision, and see whether a product changes by it.

    On CUDA that is looked at later: a context made at import would be in the way of forked workers.
    """
    try:
        before = torch.get_float32_matmul_precision()
    except RuntimeError:  # only after torch was imported: applied from the script itself
        return NoEffect(reason="the script has set the precision of products by fp32_precision")
    if before == options.precision:
        return NoEffect(reason=f"the precision is {before} already")
    switch.turn(options.precision, lambda name: site.note(f"matmul_precision: the script sets {name}, left to it"))
    if not torch.cuda.is_available() and not products_are_rounded("cpu"):
        switch.turn_back(before)
        return NoEffect(reason=f"{options.precision!r} changes no product on this CPU")
    return Applied(detail=f"float32 products at {options.precision!r}", engaged=lambda: _proof(options.precision))


def products_are_rounded(device: str) -> bool:
    """Does a float32 product on `device` show errors that float32 does not make?"""
    values = torch.linspace(0.1, 0.9, 64 * 64, dtype=torch.float64, device=device).sin().reshape(64, 64)
    product = values.float() @ values.float()
    exact = values.float().double() @ values.float().double()
    return bool(((product.double() - exact).abs().max() / exact.abs().max()) > _FLOAT32_ERROR)


def _proof(precision: str) -> str | None:
    """None where the script has set another precision since, or the device rounds nothing."""
    try:
        now = torch.get_float32_matmul_precision()
    except RuntimeError:  # the script uses the per-backend switches
        return None
    device = "cuda" if torch.cuda.is_initialized() else "cpu"
    if now != precision or not products_are_rounded(device):
        return None
    return f"products of float32 on {device} are rounded"
