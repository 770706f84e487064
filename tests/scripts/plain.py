"""A linear model, a loop without a DataLoader. Arguments: number of steps, seconds to sleep in each."""

import sys
import time

import torch

steps, pause = int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
x = torch.randn(64, 8)
y = x.sum(1, keepdim=True)
for step in range(steps):
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(pause)
    print("step", step, f"{loss.item():.6f}")
