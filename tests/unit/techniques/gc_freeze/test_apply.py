import gc

import pytest

from fulltilt.technique import Applied, NoEffect
from fulltilt.techniques.gc_freeze.apply import apply
from fulltilt.techniques.gc_freeze.spec import GcFreezeOptions
from fulltilt.testing.fake_site import FakeSite


def test_what_lives_is_set_aside():
    result = apply(FakeSite(), GcFreezeOptions())
    assert isinstance(result, Applied)
    assert gc.get_freeze_count() > 1000
    assert result.engaged() is not None


def test_a_script_that_unfreezes_is_no_proof():
    result = apply(FakeSite(), GcFreezeOptions())
    gc.unfreeze()
    assert result.engaged() is None


def test_a_collector_that_is_off_is_left_alone():
    gc.disable()
    try:
        assert isinstance(apply(FakeSite(), GcFreezeOptions()), NoEffect)
    finally:
        gc.enable()


@pytest.mark.parametrize("times", [1, 2])
def test_garbage_is_collected_before(times):
    class Cycle:
        pass

    def make():
        cycle = Cycle()
        cycle.self = cycle

    for _ in range(times):
        make()
        apply(FakeSite(), GcFreezeOptions())
    assert not [found for found in gc.get_objects() if isinstance(found, Cycle)]
