"""float16 autocast with a GradScaler and clipping, as written by the book; the third step overflows and is skipped.

scaled.py --seed N
"""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    generator = torch.Generator().manual_seed(1000 + arguments.seed)
    for step in range(100):
        inputs = torch.randn(64, 12, generator=generator)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            outputs = model(inputs)
        loss = F.cross_entropy(outputs.float(), inputs[:, :3].argmax(1))
        if step == 2:
            loss = loss * 1e6  # an outlier: its scaled gradients do not fit float16
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.3)
        scaler.step(optimizer)
        scaler.update()


if __name__ == "__main__":
    main()
