"""Datasets and loaders that workers would break, and what of a loader must stay."""

import multiprocessing
import subprocess
import sys

import numpy
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, SequentialSampler, get_worker_info

from fulltilt.records.request import TechniqueChoice
from fulltilt.technique import Applied, NoEffect
from fulltilt.techniques.dataloader import apply as module
from fulltilt.techniques.dataloader import copies, sample
from fulltilt.techniques.dataloader.apply import apply
from fulltilt.techniques.dataloader.spec import DataloaderOptions
from fulltilt.testing.fake_site import FakeSite

TWO = DataloaderOptions(num_workers=2)


class Numbers(Dataset):
    epoch = 0

    def __len__(self):
        return 10

    def __getitem__(self, index):
        return torch.tensor(float(index + 100 * self.epoch))


class Counting(Numbers):
    """Gets harder as it is read: each worker would count from the start."""

    def __init__(self):
        self.num_read = 0

    def __getitem__(self, index):
        self.num_read += 1
        return super().__getitem__(index)


def test_a_dataset_that_counts_while_it_is_read_is_left_alone():
    dataset = Counting()
    result = apply(FakeSite(loaders=DataLoader(dataset)), TWO)
    assert isinstance(result, NoEffect)
    assert "counts while it is read (num_read)" in result.reason
    assert dataset.num_read == 0


def test_a_batch_that_is_made_on_a_device_is_a_reason(monkeypatch):
    class OnDevice:
        device = torch.device("cuda")

    monkeypatch.setattr(module.sample, "look", lambda loader: sample.Sample(collated=(OnDevice(),)))
    assert "on a device" in apply(FakeSite(loaders=DataLoader(Numbers())), TWO).reason


def test_batches_of_a_batch_sampler_count_in_shared_memory(monkeypatch):
    monkeypatch.setattr(module, "_free_shared_memory", lambda: 100)
    sampler = BatchSampler(SequentialSampler(Numbers()), 5, drop_last=False)
    found = DataLoader(Numbers(), batch_sampler=sampler)
    assert "/dev/shm" in apply(FakeSite(loaders=found), TWO).reason  # 4 bytes x 5 x 2 workers x 2 batches


class Unpicklable(Numbers):
    def __init__(self):
        self.transform = lambda x: x


@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_a_loader_with_a_context_of_its_own_is_asked_whether_its_dataset_can_be_pickled(context):
    found = DataLoader(Unpicklable())
    found.__dict__["_DataLoader__multiprocessing_context"] = multiprocessing.get_context(context)
    assert "cannot be pickled" in apply(FakeSite(loaders=found), TWO).reason


def test_the_script_may_still_choose_how_processes_are_started():
    program = (
        "import multiprocessing, torch\n"
        "from fulltilt.techniques.dataloader.apply import apply\n"
        "from fulltilt.techniques.dataloader.spec import DataloaderOptions\n"
        "from fulltilt.testing.fake_site import FakeSite\n"
        "loader = torch.utils.data.DataLoader(list(range(8)))\n"
        "print(apply(FakeSite(loaders=loader), DataloaderOptions(num_workers=1)))\n"
        "multiprocessing.set_start_method('spawn')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Applied" in done.stdout


def test_a_dataset_of_very_many_python_objects_is_left_alone(monkeypatch):
    class Annotations(Numbers):
        def __init__(self):
            self.items = [{"id": str(number) * 3, "box": [number + 0.5] * 4} for number in range(2000)]

    held = copies.python_bytes(Annotations().items)
    assert 0.3e6 < held < 3e6
    monkeypatch.setattr(copies, "available_bytes", lambda: int(held))
    assert "Python objects" in apply(FakeSite(loaders=DataLoader(Annotations())), TWO).reason
    monkeypatch.setattr(copies, "available_bytes", lambda: int(100 * held))
    assert isinstance(apply(FakeSite(loaders=DataLoader(Annotations())), TWO), Applied)


@pytest.mark.parametrize("data", [numpy.zeros((1000, 1000)), torch.zeros(1000, 1000)], ids=["array", "tensor"])
def test_arrays_and_tensors_are_shared(data):
    assert copies.python_bytes([data] * 10) < 10_000


def test_the_limit_of_a_container_counts(tmp_path):
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("400\n")
    assert copies._of_the_container(str(tmp_path)) == 600
    (tmp_path / "memory.max").write_text("max\n")
    assert copies._of_the_container(str(tmp_path)) is None
    assert copies.available_bytes() > 0


class Recording(Numbers):
    def __getitem__(self, index):
        info = get_worker_info()
        return torch.tensor([index + 100.0 * self.epoch, 0.0 if info is None else float(info.dataset.mark)])


def mark(worker_id):
    get_worker_info().dataset.mark = worker_id + 1


def test_what_the_script_says_of_its_loader_stays():
    """worker_init_fn, the generator, the batch sampler's last partial batch, and the epoch set between epochs."""
    generator = torch.Generator().manual_seed(5)

    def make():
        generator.manual_seed(5)
        return DataLoader(Recording(), batch_size=4, shuffle=True, generator=generator, worker_init_fn=mark)

    def epochs(loader):
        found = []
        for epoch in range(2):
            loader.dataset.epoch = epoch
            found.append([batch[:, 0].tolist() for batch in loader])
        return found

    expected = epochs(make())
    switched = make()
    apply(FakeSite(loaders=switched), TWO)
    assert epochs(switched) == expected
    assert [len(batch) for batch in expected[0]] == [4, 4, 2]
    assert switched.generator is generator
    assert {value for batch in switched for value in batch[:, 1].tolist()} == {1.0, 2.0}


HANGS = """
import sys, time, torch
from torch.utils.data import DataLoader, Dataset, get_worker_info
class Data(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        if get_worker_info() is not None:
            time.sleep(600)
        return torch.ones(4)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for batch in DataLoader(Data(), batch_size=8):
        optimizer.zero_grad(); model(batch).sum().backward(); optimizer.step()
"""


def test_workers_that_hang_are_cut_off_and_called_a_hang(start_trial, python, tmp_path):
    (tmp_path / "hangs.py").write_text(HANGS)
    executor, trial = start_trial(
        [python, str(tmp_path / "hangs.py")],
        techniques=[TechniqueChoice(name="dataloader", options={"num_workers": 1})],
        hang_seconds=12.0,
    )
    trial.wait_ready(executor.now() + 120)
    assert trial.close().outcome == "hang"
