"""Gradients of four micro-batches are accumulated before each update; the learning rate warms up per update.

accumulation.py --seed N
"""

import argparse

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

ACCUMULATED = 4


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    generator = torch.Generator().manual_seed(1000 + arguments.seed)
    inputs = torch.randn(500, 16, generator=generator)
    targets = inputs[:, :4].argmax(1)
    shuffle = torch.Generator().manual_seed(arguments.seed)
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=16, shuffle=True, generator=shuffle)
    model = nn.Sequential(nn.Linear(16, 48), nn.LayerNorm(48), nn.GELU(), nn.Linear(48, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=20)
    for _ in range(20):
        for index, (batch, labels) in enumerate(loader):
            loss = F.cross_entropy(model(batch), labels) / ACCUMULATED
            loss.backward()
            if (index + 1) % ACCUMULATED == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()


if __name__ == "__main__":
    main()
