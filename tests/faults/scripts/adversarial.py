"""A small GAN: two optimizers, noise from a generator of its own, spectral norm, a moving average of the generator.

adversarial.py --seed N
"""

import argparse
import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm

BATCH, NOISE = 32, 8


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    maker = nn.Sequential(nn.Linear(NOISE, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2))
    critic = nn.Sequential(spectral_norm(nn.Linear(2, 32)), nn.LeakyReLU(0.2), spectral_norm(nn.Linear(32, 1)))
    averaged = copy.deepcopy(maker)
    maker_optimizer = torch.optim.Adam(maker.parameters(), lr=1e-3, betas=(0.5, 0.99))
    critic_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.99))
    noise_generator = torch.Generator().manual_seed(2000 + arguments.seed)
    for _ in range(100):
        angles = 6.2832 * torch.rand(BATCH)
        real = torch.stack([angles.cos(), angles.sin()], dim=1)
        made = maker(torch.randn(BATCH, NOISE, generator=noise_generator))
        critic_loss = F.softplus(-critic(real)).mean() + F.softplus(critic(made.detach())).mean()
        critic_optimizer.zero_grad()
        critic_loss.backward()
        critic_optimizer.step()
        maker_loss = F.softplus(-critic(made)).mean()
        maker_optimizer.zero_grad()
        maker_loss.backward()
        maker_optimizer.step()
        with torch.no_grad():
            for kept, new in zip(averaged.parameters(), maker.parameters(), strict=True):
                kept.lerp_(new, 0.01)


if __name__ == "__main__":
    main()
