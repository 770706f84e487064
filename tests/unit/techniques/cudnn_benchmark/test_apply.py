import pytest
import torch

from fulltilt.technique import Applied, NoEffect
from fulltilt.techniques.cudnn_benchmark.apply import apply
from fulltilt.techniques.cudnn_benchmark.spec import CudnnBenchmarkOptions
from fulltilt.testing.fake_site import FakeSite


@pytest.fixture(autouse=True)
def setting_put_back(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)


def test_without_cuda_it_is_no_effect(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert apply(FakeSite(), CudnnBenchmarkOptions()) == NoEffect(reason="no CUDA device")


def test_it_is_switched_on_and_proven_once_cuda_is_in_use(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    result = apply(FakeSite(), CudnnBenchmarkOptions())
    assert isinstance(result, Applied)
    assert torch.backends.cudnn.benchmark
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert result.engaged() is None
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert result.engaged() == "still on"
    assert isinstance(apply(FakeSite(), CudnnBenchmarkOptions()), NoEffect)
