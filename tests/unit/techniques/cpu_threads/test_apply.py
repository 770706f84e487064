import os

import pytest
import torch

from fulltilt.technique import Applied, NoEffect
from fulltilt.techniques.cpu_threads.apply import apply
from fulltilt.techniques.cpu_threads.spec import CpuThreadsOptions
from fulltilt.testing.fake_site import FakeSite


def test_the_number_is_set_and_read_back():
    result = apply(FakeSite(), CpuThreadsOptions(num_threads=2))
    assert isinstance(result, Applied)
    assert torch.get_num_threads() == 2
    assert result.engaged() == "2 threads in use"


def test_a_script_that_sets_its_own_number_is_no_proof():
    result = apply(FakeSite(), CpuThreadsOptions(num_threads=2))
    torch.set_num_threads(1)
    assert result.engaged() is None


def test_the_present_number_is_no_effect():
    result = apply(FakeSite(), CpuThreadsOptions(num_threads=torch.get_num_threads()))
    assert isinstance(result, NoEffect)


def test_denormal_numbers_are_flushed_on_request():
    tiny = torch.tensor(1e-39)
    assert (tiny * 1.0).item() > 0
    result = apply(FakeSite(), CpuThreadsOptions(flush_denormal=True))
    if isinstance(result, NoEffect):
        pytest.skip("this CPU cannot")
    assert (torch.tensor(1e-39) * 1.0).item() == 0


def test_the_process_stays_on_the_first_of_its_cpus(monkeypatch):
    kept = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {5, 3, 4}, raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cpus: kept.append(cpus), raising=False)
    result = apply(FakeSite(), CpuThreadsOptions(num_threads=2, affinity=True))
    assert kept == [[3, 4]]
    assert "on 2 CPUs" in result.detail
