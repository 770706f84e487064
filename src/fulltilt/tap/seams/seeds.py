"""Seed every random stream of the process that a training script commonly draws from."""

import random
import sys

import torch


def seed_everything(seed: int) -> None:
    """torch on all devices, Python's `random`, and NumPy's legacy stream where NumPy is loaded."""
    torch.manual_seed(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)
