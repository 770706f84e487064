import pytest
import torch

from fulltilt.technique import Applied, NoEffect
from fulltilt.techniques.matmul_precision import apply as module
from fulltilt.techniques.matmul_precision import switch
from fulltilt.techniques.matmul_precision.apply import apply, products_are_rounded
from fulltilt.techniques.matmul_precision.spec import MatmulPrecisionOptions
from fulltilt.testing.fake_site import FakeSite

MEDIUM = MatmulPrecisionOptions(precision="medium")


@pytest.fixture(autouse=True)
def no_cuda(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    leave_as_torch_comes()
    yield
    leave_as_torch_comes()


def leave_as_torch_comes():
    switch.turn_back()
    if hasattr(torch.backends, "fp32_precision"):
        for backend in (torch.backends, torch.backends.cuda.matmul, torch.backends.mkldnn.matmul):
            backend.fp32_precision = "none"


@pytest.fixture
def rounding(monkeypatch):
    monkeypatch.setattr(module, "products_are_rounded", lambda device: True)


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


def all_settings():
    matmul = torch.backends.cuda.matmul
    newer = [matmul.fp32_precision, torch.backends.mkldnn.matmul.fp32_precision, torch.backends.fp32_precision]
    try:
        return newer, torch.get_float32_matmul_precision(), matmul.allow_tf32
    except RuntimeError as error:
        return newer, str(error)


def set_allow_tf32(value):
    torch.backends.cuda.matmul.allow_tf32 = value


def set_newer(module, value):
    module.fp32_precision = value


needs_newer = pytest.mark.skipif(
    not hasattr(torch.backends, "fp32_precision"), reason="this torch has no fp32_precision"
)


@needs_newer
@pytest.mark.usefixtures("rounding")
@pytest.mark.parametrize("ours", ["high", "medium"])
@pytest.mark.parametrize(
    "of_the_script",
    [
        lambda: set_allow_tf32(False),
        lambda: set_allow_tf32(True),
        lambda: set_newer(torch.backends.cuda.matmul, "ieee"),
        lambda: set_newer(torch.backends.cuda.matmul, "tf32"),
        lambda: set_newer(torch.backends.mkldnn.matmul, "bf16"),
        lambda: set_newer(torch.backends, "ieee"),
        lambda: set_newer(torch.backends, "tf32"),
    ],
    ids=["allow_tf32 off", "allow_tf32 on", "cuda ieee", "cuda tf32", "mkldnn bf16", "all ieee", "all tf32"],
)
def test_a_setting_of_the_scripts_own_finds_torch_as_if_we_were_not_there(of_the_script, ours):
    """Two of torch's switches that disagree end a script in the next code that looks (pytorch#166387)."""
    of_the_script()
    expected = all_settings()
    leave_as_torch_comes()
    site = FakeSite()
    result = apply(site, MatmulPrecisionOptions(precision=ours))
    of_the_script()
    assert all_settings() == expected
    assert result.engaged() is None or expected[1] == ours
    assert len(site.notes) == 1


@needs_newer
@pytest.mark.usefixtures("rounding")
def test_switches_for_other_things_leave_ours_on():
    site = FakeSite()
    result = apply(site, MEDIUM)
    torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.allow_tf32
    with torch.backends.cudnn.flags(enabled=torch.backends.cudnn.enabled, fp32_precision=None):
        pass
    assert result.engaged() is not None
    assert site.notes == []


@pytest.mark.usefixtures("rounding")
def test_a_compilation_leaves_it_on():
    """The compiler saves and restores the settings by the same functions."""
    site = FakeSite()
    result = apply(site, MEDIUM)
    torch.compile(lambda x: (x @ x).sum(), backend="eager")(torch.ones(2, 2))
    torch._dynamo.reset()
    assert result.engaged() is not None
    assert site.notes == []


@pytest.mark.usefixtures("rounding")
def test_the_same_switch_in_the_scripts_hand_needs_no_help():
    site = FakeSite()
    result = apply(site, MEDIUM)
    torch.set_float32_matmul_precision("high")
    assert torch.get_float32_matmul_precision() == "high"
    assert result.engaged() is None


@needs_newer
@pytest.mark.usefixtures("rounding")
def test_torch_is_as_it_was_when_it_is_turned_back():
    before, setter = all_settings(), torch._C._set_cublas_allow_tf32
    apply(FakeSite(), MEDIUM)
    switch.turn_back()
    assert all_settings() == before
    assert torch._C._set_cublas_allow_tf32 is setter
