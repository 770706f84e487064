"""Leaves torch as the next test expects it."""

import gc
from collections.abc import Iterator

import pytest
import torch

from fulltilt.techniques.precision import islands
from fulltilt.techniques.precision.loss_scaling import LossScaling


@pytest.fixture(autouse=True)
def _process_settings_put_back() -> Iterator[None]:
    num_threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    torch.set_num_threads(1)  # threads of tiny operations wait for each other where tests share the CPUs
    yield
    torch.set_num_threads(num_threads)
    torch.set_float32_matmul_precision(precision)
    torch.set_flush_denormal(False)
    islands.remove()
    LossScaling.forget()
    gc.unfreeze()
