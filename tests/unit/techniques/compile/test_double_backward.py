import subprocess
import sys

import pytest

from fulltilt.techniques.compile.double_backward import places_in


@pytest.mark.parametrize(
    ("line", "asks"),
    [
        ("loss.backward(create_graph=True)", True),
        ("grad(y, x, create_graph=self.training)", True),
        ("kwargs = dict(create_graph=True)", True),
        ("loss.backward(create_graph=False)", False),
        ("loss.backward()  # create_graph=True is not needed", False),
        ("torch.autograd.functional.hessian(f, x)", True),
        ("from torch.autograd.functional import hvp; hvp(f, x)", True),
        ("mine.hessian(f, x)", False),
        ("def broken(create_graph=:", False),
    ],
)
def test_places_that_ask_for_the_graph_of_a_gradient(tmp_path, line, asks):
    path = tmp_path / "losses.py"
    path.write_text(f"import torch\n{line}\n")
    assert list(places_in(str(path))) == (["losses.py:2"] if asks else [])


TRAINS = """
import torch, {imported}
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(8):
    optimizer.zero_grad()
    loss = net(torch.ones(2, 4)).square().sum()
    if step == 7:
        loss = loss + penalty.penalty(loss, net)
    loss.backward()
    optimizer.step()
"""


def test_a_penalty_that_begins_late_keeps_compile_away(tmp_path):
    (tmp_path / "train.py").write_text(TRAINS.format(imported="penalty"))
    (tmp_path / "penalty.py").write_text(
        "import torch\ndef penalty(loss, net):\n"
        "    return sum(g.square().sum() for g in torch.autograd.grad(loss, net.parameters(), create_graph=True))\n"
    )
    (tmp_path / "recipe.yaml").write_text("techniques: {compile: {scope: model}}\n")
    command = [sys.executable, "-m", "fulltilt", "run", "-r", "recipe.yaml", "--", sys.executable, "train.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "no effect: compile (penalty.py:3 asks for the graph of a gradient" in done.stderr
