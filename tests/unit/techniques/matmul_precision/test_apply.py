import pytest
import torch

from fulltilt.technique import Applied, NoEffect
from fulltilt.techniques.matmul_precision import apply as module
from fulltilt.techniques.matmul_precision.apply import apply, products_are_rounded
from fulltilt.techniques.matmul_precision.spec import MatmulPrecisionOptions
from fulltilt.testing.fake_site import FakeSite

MEDIUM = MatmulPrecisionOptions(precision="medium")


@pytest.fixture(autouse=True)
def no_cuda(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_plain_float32_products_are_not_taken_for_rounded():
    assert not products_are_rounded("cpu")


def test_products_of_rounded_factors_are_seen(monkeypatch):
    product = torch.Tensor.__matmul__

    def rounded(a, b):
        if a.dtype == torch.float32:
            return product(a.bfloat16().float(), b.bfloat16().float())
        return product(a, b)

    monkeypatch.setattr(torch.Tensor, "__matmul__", rounded)
    assert products_are_rounded("cpu")


def test_a_device_that_rounds_nothing_is_no_effect_and_the_setting_goes_back(monkeypatch):
    monkeypatch.setattr(module, "products_are_rounded", lambda device: False)
    result = apply(FakeSite(), MEDIUM)
    assert isinstance(result, NoEffect)
    assert torch.get_float32_matmul_precision() == "highest"


def test_the_proof_is_a_product_that_is_rounded(monkeypatch):
    monkeypatch.setattr(module, "products_are_rounded", lambda device: True)
    result = apply(FakeSite(), MEDIUM)
    assert isinstance(result, Applied)
    assert result.engaged() is not None
    torch.set_float32_matmul_precision("highest")
    assert result.engaged() is None


def test_the_present_setting_is_no_effect():
    torch.set_float32_matmul_precision("medium")
    assert "medium already" in apply(FakeSite(), MEDIUM).reason
