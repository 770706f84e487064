import torch

from fulltilt.tap.describe import Observer, describe
from fulltilt.tap.seams.backward import BackwardSeam
from fulltilt.tap.seams.calls import CallSeam
from fulltilt.tap.site import TapSite


def test_a_scaler_of_the_script_is_in_the_record_while_it_is_enabled():
    site = TapSite(CallSeam(lambda module, args, kwargs: None), BackwardSeam())
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    assert not describe(site, Observer()).grad_scaler_by_user
    scaler = torch.amp.GradScaler("cpu")
    assert describe(site, Observer()).grad_scaler_by_user
    assert scaler.is_enabled()
