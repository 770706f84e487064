"""Training loops of several shapes. Arguments: the shape, the number of periods."""

import sys

import torch
from torch.nn.functional import mse_loss

shape, periods = sys.argv[1], int(sys.argv[2])
torch.manual_seed(0)
x, y = torch.randn(32, 4), torch.randn(32, 1)
model, critic = torch.nn.Linear(4, 1), torch.nn.Linear(1, 1)


def plain_step(optimizer, backwards=1):
    optimizer.zero_grad()
    for _ in range(backwards):
        mse_loss(model(x), y).backward()
    optimizer.step()


if shape == "accumulation":
    adam = torch.optim.Adam(model.parameters())
    for _ in range(periods):
        plain_step(adam, backwards=4)
elif shape == "gan":
    of_critic, of_model = torch.optim.Adam(critic.parameters()), torch.optim.Adam(model.parameters())
    for _ in range(periods):
        mse_loss(critic(model(x).detach()), y).backward()
        of_critic.step()
        of_critic.zero_grad()
        (-mse_loss(critic(model(x)), y)).backward()
        of_model.step()
        of_model.zero_grad()
elif shape == "closure":
    lbfgs = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def closure():
        lbfgs.zero_grad()
        loss = mse_loss(model(x), y)
        loss.backward()
        return loss

    for _ in range(periods):
        lbfgs.step(closure)
elif shape == "by_hand":
    for _ in range(periods):
        model.zero_grad()
        mse_loss(model(x), y).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.01 * parameter.grad
elif shape == "two_phases":
    first, second = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.Adam(model.parameters())
    for _ in range(periods // 2):
        plain_step(first)
    for _ in range(periods - periods // 2):
        plain_step(second)
elif shape == "loader":
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=8)
    adam = torch.optim.Adam(model.parameters())
    done = 0
    while done < periods:
        for inputs, targets in loader:
            adam.zero_grad()
            mse_loss(model(inputs), targets).backward()
            adam.step()
            done += 1
