"""A small language model: tied embeddings, masked holes in the text, positions in a buffer, two groups, clipping.

transformer.py --seed N [--dropout P]
"""

import argparse
import math

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, WIDTH, HEADS, CONTEXT, BATCH = 53, 32, 2, 16, 16


class Attention(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)
        self.dropout = dropout

    def forward(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        heads = [f(hidden).unflatten(-1, (HEADS, -1)).transpose(1, 2) for f in (self.query, self.key, self.value)]
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(*heads, attn_mask=mask, dropout_p=dropout)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention(dropout)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = hidden + self.dropout(self.attention(self.norm1(hidden), mask))
        return hidden + self.dropout(self.down(F.gelu(self.up(self.norm2(hidden)))))


class Model(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0)
        nn.init.normal_(self.embedding.weight, std=0.2)
        angles = torch.arange(CONTEXT)[:, None] / 10_000 ** (torch.arange(0, WIDTH, 2) / WIDTH)
        self.register_buffer("positions", torch.cat([angles.sin(), angles.cos()], dim=1))
        self.blocks = nn.ModuleList(Block(dropout) for _ in range(2))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        length = tokens.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        mask = causal & (tokens != 0)[:, None, None, :]
        hidden = self.embedding(tokens) * math.sqrt(WIDTH) + self.positions[:length]
        for block in self.blocks:
            hidden = block(hidden, mask)
        return self.head(self.norm(hidden))


def batches(seed: int):
    generator = torch.Generator().manual_seed(1000 + seed)
    while True:
        starts = torch.randint(VOCABULARY - 1, (BATCH, 1), generator=generator)
        tokens = 1 + (starts + 7 * torch.arange(CONTEXT + 1)) % (VOCABULARY - 1)
        noisy = torch.where(torch.rand(tokens.shape, generator=generator) < 0.1, starts + 1, tokens)
        holes = torch.rand(tokens.shape, generator=generator) < 0.1
        holes[:, 0] = False
        padded = torch.where(holes, 0, noisy)
        yield padded[:, :-1], padded[:, 1:]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dropout", type=float, default=0.0)
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    model = Model(arguments.dropout)
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=2e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
    for _, (tokens, targets) in zip(range(100), batches(arguments.seed), strict=False):
        logits = model(tokens)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()


if __name__ == "__main__":
    main()
