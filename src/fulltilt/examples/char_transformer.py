"""Trains a small character-level transformer on made-up arithmetic. Plain PyTorch; `fulltilt demo` tunes this file."""

import argparse
import random

import torch
import torch.nn.functional as F
from torch import nn

CONTEXT = 128


def make_text(num_lines: int) -> str:
    dice = random.Random(7)
    pairs = ((dice.randrange(1000), dice.randrange(1000)) for _ in range(num_lines))
    return "".join(f"{a} plus {b} is {a + b}.\n" for a, b in pairs)


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        heads = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class CharTransformer(nn.Module):
    def __init__(self, num_symbols: int, width: int = 256, depth: int = 4, heads: int = 4) -> None:
        super().__init__()
        self.symbol, self.place = nn.Embedding(num_symbols, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, num_symbols)

    def forward(self, symbols: torch.Tensor) -> torch.Tensor:
        x = self.symbol(symbols) + self.place.weight[: symbols.size(1)]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch-size", type=int, default=16)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    text = make_text(4000)
    symbols = sorted(set(text))
    data = torch.tensor([symbols.index(character) for character in text])
    model = CharTransformer(len(symbols))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(arguments.steps):
        starts = torch.randint(len(data) - CONTEXT - 1, (arguments.batch_size,)).tolist()
        x = torch.stack([data[start : start + CONTEXT] for start in starts])
        y = torch.stack([data[start + 1 : start + CONTEXT + 1] for start in starts])
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
