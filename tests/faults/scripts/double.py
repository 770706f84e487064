"""Regression in float64, as scientific codes train: small differences matter.

double.py --seed N
"""

import argparse

import torch
from torch import nn


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    model = nn.Sequential(nn.Linear(3, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 1)).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(1000 + arguments.seed)
    for _ in range(100):
        points = torch.rand(64, 3, generator=generator, dtype=torch.float64)
        loss = (model(points) - (5 * points).sin().prod(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
