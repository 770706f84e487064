"""Trains, and in each step writes in every way that training scripts do; fails when it does not see its own writes.

With `--python-only`, what only native libraries and other programs write is left out. Expects `make_belongings` to have
filled the working folder and the home (tests/belongings.py).
"""

import csv
import ctypes
import json
import logging
import mmap
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile

import numpy
import torch
from safetensors.torch import load_file, save_file

steps = int(sys.argv[1])
python_only = "--python-only" in sys.argv
home = pathlib.Path.home()
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
logging.basicConfig(handlers=[logging.FileHandler("train.log")], level=logging.INFO)


def written_by_python(step):
    checkpoint = {"model": model.state_dict(), "step": step}
    torch.save(checkpoint, "checkpoints/last.pt.part")
    os.replace("checkpoints/last.pt.part", "checkpoints/last.pt")
    assert torch.load("checkpoints/last.pt")["step"] == step
    model.load_state_dict(torch.load("checkpoints/last.pt")["model"])
    save_file({"weight": model.weight.detach().clone()}, "checkpoints/model.safetensors")
    assert load_file("checkpoints/model.safetensors")["weight"].shape == (1, 8)
    logging.info("step %d", step)
    with open("history.csv", "a", newline="") as file:
        csv.writer(file).writerow([step, 0.5])
    assert pathlib.Path("history.csv").read_text().startswith("step,loss\n")
    numpy.save("weights.npy", model.weight.detach().numpy())
    assert numpy.load("weights.npy").shape == (1, 8)
    os.makedirs(f"runs/new/{step}", exist_ok=True)
    pathlib.Path(f"runs/new/{step}/config.json").write_text(json.dumps({"step": step}))
    shutil.copytree("runs/old", f"runs/copy{step}")
    shutil.rmtree(f"runs/copy{step}")
    if pathlib.Path("checkpoints/oldest.pt").exists():
        pathlib.Path("checkpoints/oldest.pt").unlink()
        shutil.rmtree("runs/gone")
        os.rename("runs/old", "runs/older")
        os.rename("runs/older", "runs/old")
    assert not os.path.exists("checkpoints/oldest.pt")
    assert "gone" not in os.listdir("runs")
    if os.path.lexists("latest"):
        os.unlink("latest")
    os.symlink("checkpoints/last.pt", "latest")
    assert torch.load("latest")["step"] == step
    os.chmod("script.cfg", 0o600)
    os.utime("script.cfg", (1, 1))
    with tempfile.NamedTemporaryFile("w", dir=".", suffix=".tmp", delete=False) as file:
        file.write("left behind")
    pathlib.Path(file.name).replace("settled.txt")
    (home / ".config").mkdir(exist_ok=True)
    (home / ".config" / "tracker.json").write_text("{}")


def written_by_others(step):
    database = sqlite3.connect("metrics.db")
    database.execute("create table if not exists losses (step int)")
    database.execute("insert into losses values (?)", (step,))
    database.commit()
    assert database.execute("select max(step) from losses").fetchone() == (step,)
    database.close()
    subprocess.run(["sh", "-c", "echo again >> train.log; echo x > by_shell; rm -f checkpoints/old*.pt"], check=True)
    assert "again" in pathlib.Path("train.log").read_text()
    array = numpy.memmap("tokens.bin", dtype="uint8", mode="r+")
    array[0] = 99
    array.flush()
    with open("tokens.bin", "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        assert memory[0] == 99
        memory[1] = 98
    libc = ctypes.CDLL(None)
    libc.creat(b"by_libc", 0o644)
    libc.chmod(b"script.cfg", 0o777)
    (home / ".cache" / "models").mkdir(parents=True, exist_ok=True)
    (home / ".cache" / "models" / "downloaded").write_text(str(step))
    absolute = home.parent / "elsewhere"
    absolute.mkdir(exist_ok=True)
    subprocess.run(["cp", "checkpoints/last.pt", str(absolute)], check=True)
    assert os.getuid() == os.stat("script.cfg").st_uid


for step in range(steps):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).square().mean().backward()
    optimizer.step()
    if step < 4 or step % 500 == 0:
        written_by_python(step)
        if not python_only:
            written_by_others(step)
print("trained to the end")
