"""A convolutional network on augmented images from a DataLoader, with two averages of its weights and evaluations.

images.py --seed N [--dropout P]
"""

import argparse

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, Dataset

NUM_IMAGES, BATCH, CLASSES = 90, 16, 5


class Images(Dataset):
    """Each image is flipped at random when it is read."""

    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(1000 + seed)
        self.images = torch.randn(NUM_IMAGES, 3, 8, 8, generator=generator)
        self.labels = torch.randint(CLASSES, (NUM_IMAGES,), generator=generator)
        self.images += self.labels[:, None, None, None] * 0.3

    def __len__(self) -> int:
        return NUM_IMAGES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        image = self.images[index]
        return image.flip(-1) if torch.rand(()) < 0.5 else image.clone(), self.labels[index]


class Network(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.first, self.norm1 = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.second, self.norm2 = nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32)
        self.dropout, self.head = nn.Dropout(dropout), nn.Linear(32, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = F.max_pool2d(F.relu(self.norm1(self.first(images))), 2)
        hidden = F.relu(self.norm2(self.second(hidden))).mean((2, 3))
        return self.head(self.dropout(hidden))


class Average:
    """The usual hand-written average of the weights."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.shadow = {name: value.detach().clone() for name, value in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        for name, value in model.state_dict().items():
            if value.is_floating_point():
                self.shadow[name] = self.decay * self.shadow[name] + (1 - self.decay) * value


@torch.no_grad()
def evaluate(model: nn.Module, images: Images) -> float:
    model.eval()
    accuracy = (model(images.images).argmax(1) == images.labels).float().mean().item()
    model.train()
    return accuracy


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dropout", type=float, default=0.0)
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    images = Images(arguments.seed)
    loader = DataLoader(images, batch_size=BATCH, shuffle=True)
    model = Network(arguments.dropout)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    average = Average(model, 0.99)
    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99))
    num_steps = 0
    for _ in range(20):
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            average.update(model)
            averaged.update_parameters(model)
            num_steps += 1
            if num_steps % 4 == 0:
                evaluate(model, images)


if __name__ == "__main__":
    main()
