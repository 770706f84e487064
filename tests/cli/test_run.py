"""`fulltilt run` without a recipe leaves everything as it was: the cases are scripts that break naive tools."""

import json
import os
import subprocess
import sys

import pytest

LOADS_MAIN = """
import os, pickle, sys, torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
    def forward(self, x):
        return self.layer(x)
net = Net()
optimizer = torch.optim.Adam(net.parameters())
for _ in range(8):
    optimizer.zero_grad(); net(torch.ones(1, 2)).sum().backward(); optimizer.step()
assert type(pickle.loads(pickle.dumps(net))) is Net
assert sys.modules["__main__"].Net is Net and __name__ == "__main__" and __spec__ is None
assert list(net.state_dict()) == ["layer.weight", "layer.bias"] and vars(net).keys() == vars(Net()).keys()
print(sys.argv[1:], os.path.basename(sys.argv[0]), os.path.basename(sys.path[0]) != "startup")
"""


def run(*command, recipe=None, cwd=None, **environment):
    options = ["--recipe", str(recipe)] if recipe else []
    return subprocess.run(
        [sys.executable, "-m", "fulltilt", "run", *options, "--", *command],
        capture_output=True,
        cwd=cwd,
        env={**os.environ, **environment},
        check=False,
    )


def test_main_argv_and_pickles_are_pythons_own(tmp_path):
    (tmp_path / "script.py").write_text(LOADS_MAIN)
    done = run(sys.executable, "script.py", "--lr", "3e-4", cwd=tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == (b"['--lr', '3e-4'] script.py True\n", b"", 0)


@pytest.mark.parametrize("status", [0, 1, 3, 130])
def test_the_exit_status_is_the_commands(status):
    assert run(sys.executable, "-c", f"import torch, sys; sys.exit({status})").returncode == status


def test_a_signal_ends_it_as_it_would_have():
    assert run(sys.executable, "-c", "import torch, os; os.kill(os.getpid(), 9)").returncode == -9


def test_a_script_alone_is_short_for_python_and_the_script(tmp_path):
    (tmp_path / "script.py").write_text("import sys, torch; print(sys.argv[1:])\n")
    command = [sys.executable, "-m", "fulltilt", "run", "script.py", "--recipe", "3e-4", "-r"]
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, env={**os.environ, "PATH": path}
    )
    assert (done.stdout, done.returncode) == ("['--recipe', '3e-4', '-r']\n", 0)


def test_binary_output_passes_through():
    done = run(sys.executable, "-c", "import torch, sys; sys.stdout.buffer.write(bytes(range(256)))")
    assert done.stdout == bytes(range(256))


def test_another_sitecustomize_still_runs(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("print('mine', __name__)\n")
    done = run(
        sys.executable, "-c", "import sitecustomize, torch; print(sitecustomize.__file__)", PYTHONPATH=str(tmp_path)
    )
    lines = done.stdout.decode().splitlines()  # fulltilt itself has printed the first
    assert lines[1:] == ["mine sitecustomize", str(tmp_path / "sitecustomize.py")]


def test_asking_whether_torch_could_be_imported_does_not_keep_us_out(tmp_path, scripts):
    (tmp_path / "recipe.yaml").write_text("techniques: {fused_optimizer: {}}\n")
    (tmp_path / "script.py").write_text(
        "import importlib.util, runpy, sys\n"
        "assert importlib.util.find_spec('torch') and importlib.util.find_spec('torch')\n"
        f"sys.argv = ['plain.py', '9']; runpy.run_path({str(scripts / 'plain.py')!r}, run_name='__main__')\n"
    )
    done = run(sys.executable, str(tmp_path / "script.py"), recipe=tmp_path / "recipe.yaml")
    assert b"applied: fused_optimizer" in done.stderr


def test_a_recipe_is_applied_and_said_once(tmp_path, scripts):
    (tmp_path / "recipe.yaml").write_text("techniques: {fused_optimizer: {}, channels_last: {}}\n")
    done = run(sys.executable, str(scripts / "plain.py"), "20", recipe=tmp_path / "recipe.yaml")
    said = [line for line in done.stderr.decode().splitlines() if line.startswith("fulltilt:")]
    assert len(said) == 1
    assert "applied: fused_optimizer" in said[0]
    assert "no effect: channels_last" in said[0]
    assert done.returncode == 0


def test_a_script_that_dies_in_its_first_step_is_told_what_was_applied(tmp_path):
    """A product of sparse and half-precision numbers has a forward pass, and no backward pass."""
    (tmp_path / "recipe.yaml").write_text("techniques: {precision: {}}\n")
    (tmp_path / "script.py").write_text(
        "import torch\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__(); self.layer = torch.nn.Linear(4, 4)\n"
        "    def forward(self, x):\n"
        "        return torch.sparse.mm(torch.eye(4).to_sparse(), self.layer(x))\n"
        "Net()(torch.ones(4, 4)).sum().backward()\n"
    )
    done = run(sys.executable, "-W", "ignore", str(tmp_path / "script.py"), recipe=tmp_path / "recipe.yaml")
    assert done.returncode == 1
    said = done.stderr.decode()
    assert "applied: precision (autocast to bfloat16" in said
    assert "does not come without the recipe" in said


def test_children_of_a_shell_script_are_reached(tmp_path, scripts):
    (tmp_path / "recipe.yaml").write_text("techniques: {fused_optimizer: {}}\n")
    (tmp_path / "go.sh").write_text(f'exec "{sys.executable}" "{scripts}/plain.py" 9\n')
    done = run("sh", str(tmp_path / "go.sh"), recipe=tmp_path / "recipe.yaml")
    assert b"applied: fused_optimizer" in done.stderr


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("techniques: {precison: true}", "did you mean 'precision'"),
        ("techniques: {precision: {dtype: 7}}", "precision.dtype is 7"),
        ("schema: 99", "newer than this fulltilt"),
    ],
)
def test_a_bad_recipe_is_one_message_and_status_2(tmp_path, text, complaint):
    (tmp_path / "recipe.yaml").write_text(text + "\n")
    done = run(sys.executable, "-c", "print('ran')", recipe=tmp_path / "recipe.yaml")
    assert done.returncode == 2
    assert complaint in done.stderr.decode()
    assert done.stdout == b""
    assert "Traceback" not in done.stderr.decode()


def test_the_api_gives_the_status_and_comes_back(scripts):
    program = (
        "import fulltilt, sys, json\n"
        f"statuses = [fulltilt.run([sys.executable, {str(scripts / 'plain.py')!r}, '6']),"
        " fulltilt.run([sys.executable, '-c', 'import os; os.kill(os.getpid(), 11)'])]\n"
        "print(json.dumps(statuses)); assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == [0, 139]
