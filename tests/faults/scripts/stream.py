"""Regression on a stream: an iterable dataset with noise of its own, in batches of a DataLoader.

stream.py --seed N
"""

import argparse

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(1000 + seed)
        self.points = torch.randn(600, 8, generator=generator)

    def __iter__(self):
        for point in self.points:
            yield point + 0.01 * torch.randn(8), point.sum().view(1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(5):
        for inputs, targets in DataLoader(Stream(arguments.seed), batch_size=12):
            optimizer.zero_grad()
            F.mse_loss(model(inputs), targets).backward()
            optimizer.step()


if __name__ == "__main__":
    main()
