"""Sketches: linear, deterministic, exact where small, for every kind of tensor, and without side effects."""

import math
import subprocess
import sys
import warnings
from collections.abc import Callable

import pytest
import torch

from fulltilt.numerics.distance import difference, distance, size
from fulltilt.numerics.sketching import CHUNK_NUMEL, sketch, state_signature
from fulltilt.records.record import SKETCH_SIZE


def random_tensor(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("numel", [1, 64, 65, 1000, CHUNK_NUMEL, CHUNK_NUMEL + 1, 3 * CHUNK_NUMEL - 17])
def test_norm_is_that_of_the_tensor(numel: int) -> None:
    tensor = random_tensor(numel)
    found = sketch(tensor)
    assert found.norm == pytest.approx(float(tensor.double().norm()), rel=1e-12)
    assert (found.numel, len(found.projection)) == (numel, min(numel, SKETCH_SIZE))


def test_small_tensors_are_kept_element_by_element() -> None:
    tensor = random_tensor(4, 16)
    assert sketch(tensor).projection == tuple(tensor.double().flatten().tolist())


@pytest.mark.parametrize("numel", [65, 5000, CHUNK_NUMEL + 5])
def test_sketch_is_linear(numel: int) -> None:
    a, b = random_tensor(numel).double(), random_tensor(numel, seed=1).double()
    assert difference(sketch(a), sketch(b)).projection == pytest.approx(sketch(a - b).projection, abs=1e-9)


@pytest.mark.parametrize(
    "make",
    [
        lambda n: torch.ones(n),
        lambda n: random_tensor(n),
        lambda n: (torch.arange(n) % 2).float(),
        lambda n: (torch.arange(n) % 64 == 3).float(),
        lambda n: (torch.arange(n) % CHUNK_NUMEL < 4000).float(),
    ],
    ids=["constant", "random", "alternating", "one column of 64", "the same rows in every chunk"],
)
def test_norm_estimated_from_the_projection_is_near_the_norm(make: Callable[[int], torch.Tensor]) -> None:
    # Four standard deviations of a count sketch with 64 buckets.
    found = sketch(make(5 * CHUNK_NUMEL))
    assert size(found) == pytest.approx(found.norm, rel=4 / math.sqrt(2 * SKETCH_SIZE))


def test_distance_is_unbiased_over_many_differences() -> None:
    ratios = []
    for seed in range(40):
        base, step = random_tensor(3000), 1e-3 * random_tensor(3000, seed=100 + seed)
        ratios.append(distance(sketch(base.double() + step), sketch(base)) / float(step.double().norm()))
    assert sum(ratios) / len(ratios) == pytest.approx(1.0, abs=0.06)


def test_one_changed_bit_is_seen() -> None:
    tensor = random_tensor(100_000)
    changed = tensor.clone()
    changed[77] = torch.nextafter(changed[77], torch.tensor(9.0))
    assert sketch(changed) != sketch(tensor)


def test_sketch_is_the_same_in_another_process_with_another_seed_and_number_of_threads() -> None:
    code = (
        "import torch; torch.manual_seed(5); torch.set_num_threads(1); from fulltilt.numerics.sketching import sketch;"
        "print(repr(sketch(torch.arange(700_001) % 1013 * 0.37)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == repr(sketch(torch.arange(700_001) % 1013 * 0.37))


def test_signs_and_buckets_stay_what_they_are_between_versions() -> None:
    # Journals hold sketches: those of another version of fulltilt must be comparable.
    found = sketch(torch.arange(200))
    assert found.projection[:4] == (-229.0, -387.0, -339.0, -321.0)


@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.float8_e4m3fn],
    ids=str,
)
def test_every_real_dtype_is_read_as_float64(dtype: torch.dtype) -> None:
    tensor = (torch.arange(300) % 7).to(dtype)
    assert sketch(tensor) == sketch(tensor.double())


def test_complex_numbers_count_as_two_reals() -> None:
    tensor = torch.complex(random_tensor(100), random_tensor(100, seed=1))
    assert sketch(tensor) == sketch(torch.view_as_real(tensor))
    assert sketch(tensor.conj()) == sketch(torch.view_as_real(tensor.conj().resolve_conj()))


@pytest.mark.parametrize("shape", [(8, 40, 30, 30), (3, 400, 300)])
def test_layout_in_memory_does_not_matter(shape: tuple[int, ...]) -> None:
    tensor = random_tensor(*shape)
    moved = tensor.transpose(0, -1).contiguous().transpose(0, -1)
    assert not moved.is_contiguous()
    assert sketch(moved) == sketch(tensor)


@pytest.mark.parametrize("width", [1, 7, 300])
def test_sparse_gradients_equal_their_dense_form(width: int) -> None:
    rows = torch.tensor([[5, 40_000, 5, 1999]])
    values = random_tensor(4, width)
    uncoalesced = torch.sparse_coo_tensor(rows, values, (50_000, width), check_invariants=True)
    assert sketch(uncoalesced) == sketch(uncoalesced.to_dense())
    assert not uncoalesced.is_coalesced()


def test_sparse_tensors_of_other_kinds_equal_their_dense_form() -> None:
    dense = random_tensor(40, 30) * (random_tensor(40, 30, seed=1) > 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that CSR is in beta
        csr = dense.to_sparse_csr()
    small = torch.eye(4)
    empty = torch.sparse_coo_tensor(
        torch.zeros(1, 0, dtype=torch.int64), torch.zeros(0, 9), (100, 9), check_invariants=True
    )
    assert sketch(csr) == sketch(dense)
    assert sketch(dense.to_sparse()) == sketch(dense)
    assert sketch(torch.complex(dense, -dense).to_sparse()) == sketch(torch.complex(dense, -dense))
    assert sketch(small.to_sparse()) == sketch(small)
    assert sketch(empty) == sketch(torch.zeros(100, 9))


def test_tensors_without_values_have_no_buckets() -> None:
    assert sketch(torch.empty(0, 3)).projection == ()
    assert sketch(torch.empty(100, 3, device="meta")).numel == 300


def test_a_number_is_one_element() -> None:
    assert sketch(torch.tensor(-3.0)).projection == (-3.0,)
    assert sketch(torch.tensor(-3.0)).norm == 3.0


@pytest.mark.parametrize("numel", [10, 1000])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_norm_shows_values_that_are_not_finite(numel: int, value: float) -> None:
    tensor = torch.ones(numel)
    tensor[3] = value
    assert not math.isfinite(sketch(tensor).norm)


def test_nothing_is_left_behind() -> None:
    tensor = random_tensor(1000).requires_grad_()
    before, state = tensor.detach().clone(), torch.get_rng_state()
    version = tensor._version
    with torch.autocast("cpu", torch.bfloat16):
        inside = sketch(tensor)
    assert inside == sketch(tensor)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(tensor.detach(), before)
    assert (tensor._version, tensor.grad) == (version, None)


def test_defaults_of_the_user_do_not_matter() -> None:
    expected = sketch(torch.arange(1000))
    torch.set_default_dtype(torch.float64)
    torch.use_deterministic_algorithms(True)
    try:
        with torch.device("meta"):
            assert sketch(torch.arange(1000, device="cpu")) == expected
    finally:
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)


def test_state_signature_names_dtype_and_shape() -> None:
    assert state_signature(torch.zeros(3, 4, dtype=torch.bfloat16)) == "bfloat16 [3, 4]"
    assert state_signature(torch.tensor(1)) == "int64 []"
