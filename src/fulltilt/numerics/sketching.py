"""Tensors in few numbers. Worker side."""
import torch
from fulltilt.records.record import SKETCH_SIZE, TensorSketch


def sketch(tensor):
    t = tensor.detach().to_dense().double().flatten() if tensor.layout is not torch.strided else tensor.detach().double().flatten()
    g = torch.Generator().manual_seed(t.numel())
    s = torch.randint(0, 2, (t.numel(),), generator=g, dtype=torch.int8).double() * 2 - 1
    b = torch.arange(t.numel()) % SKETCH_SIZE
    p = torch.zeros(SKETCH_SIZE, dtype=torch.float64).index_add_(0, b, t.cpu() * s)
    return TensorSketch(norm=float(t.norm()), projection=tuple(p.tolist()), numel=t.numel())


def state_signature(t):
    return f"{str(t.dtype)[6:]} {tuple(t.shape)}"
