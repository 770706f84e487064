"""A perceptron with BatchNorm and a frozen stem, trained by SGD with momentum.

perceptron.py --seed N [--dropout P] [--tensor-lr]
"""

import argparse

import torch
from torch import nn
from torch.nn import functional as F

BATCH, CLASSES = 64, 10


def make_model(dropout: float) -> nn.Module:
    stem = nn.Linear(20, 32)
    for parameter in stem.parameters():
        parameter.requires_grad_(False)
    return nn.Sequential(
        stem, nn.Tanh(),
        nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(dropout),
        nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(dropout),
        nn.Linear(64, CLASSES),
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--tensor-lr", action="store_true")
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    model = make_model(arguments.dropout)
    trained = [p for p in model.parameters() if p.requires_grad]
    if arguments.tensor_lr:
        optimizer = torch.optim.Adam(trained, lr=torch.tensor(1e-3))
    else:
        optimizer = torch.optim.SGD(trained, lr=0.05, momentum=0.9, weight_decay=0.01)
    generator = torch.Generator().manual_seed(1000 + arguments.seed)
    teacher = torch.randn(20, CLASSES, generator=generator)
    for _ in range(100):
        inputs = torch.randn(BATCH, 20, generator=generator)
        loss = F.cross_entropy(model(inputs), (inputs @ teacher).argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
