"""A training step of about 30 ms on one thread, for benchmarks/aa.py. Argument: how many steps (default: for ever)."""

import itertools
import sys

import torch

steps = range(int(sys.argv[1])) if len(sys.argv) > 1 else itertools.count()
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(*(layer for _ in range(4) for layer in (torch.nn.Linear(512, 512), torch.nn.GELU())))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
x = torch.randn(384, 512)
for _ in steps:
    loss = (model(x) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
