"""A small classifier with dropout, printed evaluations, and faults on request. Arguments: steps, then words.

`seeded`: seeds itself. `fixed`: batches come from a generator of its own, no dropout. `loader`: batches come from a
shuffling DataLoader, no dropout. `silent`: prints nothing. `fault:N`, `nan:N`, `diverge:N`, `stop:N`, `raise:N`: from
training step N on, but only where a recipe is applied (FULLTILT_REQUEST names one), something goes wrong.
"""

import json
import os
import sys
import time

import torch
from torch.nn import functional as F

torch.set_num_threads(1)
steps, words = int(sys.argv[1]), sys.argv[2:]
faults = {word.partition(":")[0]: int(word.partition(":")[2]) for word in words if ":" in word}
request = os.environ.get("FULLTILT_REQUEST")
has_recipe = False
if request is not None:
    with open(request, encoding="utf-8") as file:
        has_recipe = bool(json.load(file)["techniques"])
if "seeded" in words:
    torch.manual_seed(1337)

maker = torch.Generator().manual_seed(7)
teacher = torch.randn(8, 3, generator=maker)
train_x, val_x = torch.randn(512, 8, generator=maker), torch.randn(256, 8, generator=maker)
train_y = (train_x @ teacher + 0.5 * torch.randn(512, 3, generator=maker)).argmax(1)
val_y = (val_x @ teacher).argmax(1)
order = torch.Generator().manual_seed(3) if "fixed" in words else None
drop = 0.0 if {"fixed", "loader"} & set(words) else 0.1
loader = torch.utils.data.DataLoader(range(512), batch_size=64, shuffle=True)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Dropout(drop), torch.nn.Linear(32, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
criterion = torch.nn.CrossEntropyLoss()


def evaluate(step):
    model.eval()
    with torch.no_grad():
        logits = model(val_x)
        loss = criterion(logits, val_y)
        accuracy = (logits.argmax(1) == val_y).float().mean()
    model.train()
    if "silent" not in words:
        print(
            f"step {step} val loss {loss.item():.4f} acc {accuracy.item():.3f} ({time.perf_counter():.1f}s)", flush=True
        )


def batches():
    while True:
        yield from loader if "loader" in words else [torch.randint(0, 512, (64,), generator=order)]


for step, batch in zip(range(1, steps + 1), batches(), strict=False):
    loss = F.cross_entropy(model(train_x[batch]), train_y[batch])
    if has_recipe:
        if step >= faults.get("fault", steps + 1):
            loss = F.cross_entropy(model(train_x[batch]), train_y[batch.flip(0)])
        if step >= faults.get("nan", steps + 1):
            loss = loss * float("nan")
        if step >= faults.get("diverge", steps + 1):
            optimizer.param_groups[0]["lr"] = 30.0
        if step >= faults.get("raise", steps + 1):
            raise ValueError("a bad batch")
        if step > faults.get("stop", steps + 1):
            break
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        evaluate(step)
