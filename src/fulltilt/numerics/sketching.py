"""Tensors in 65 numbers. Worker side: torch and the standard library only.

A sketch is a count sketch (Charikar, Chen, Farach-Colton 2002): every element gets a sign and one of 64 buckets, both
from a hash of its position, and each bucket is summed. Positions are counted in the logical (row-major) order of the
tensor, so that memory format, sparsity and dtype do not matter. No generator is used, global or private: hashes are
integer arithmetic, the same in every process, on every device and in every version of torch.

Buckets are not filled by a scatter, whose order of additions is not deterministic on CUDA: chunks are permuted by a
fixed permutation and summed in 64 rows, which is deterministic everywhere.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator

import torch

from fulltilt.records.record import SKETCH_SIZE, TensorSketch

CHUNK_NUMEL = 1 << 18
"""Elements that are worked on at a time: 2 MiB in float64, so the few temporaries stay in the cache of a CPU core."""
_BITS_PER_HASH = 32
_MASK = 0xFFFFFFFF

_Read = Callable[[int, int], torch.Tensor]
"""`read(first, last)`: these rows of a tensor, flat and dense."""


def sketch(tensor: torch.Tensor) -> TensorSketch:
    """The norm and the count sketch of any tensor, in float64; the tensor is read and nothing else.

    All dtypes (complex numbers count as two reals), devices and layouts are taken. A tensor of up to 64 elements is
    kept element by element, so its sketch is exact. An empty one has no buckets; a meta tensor has no values, so no
    buckets either. Temporary memory: a few times 2 MiB, or two rows (slices of the first dimension) of a tensor that is
    not contiguous or is sparse, whichever is larger.
    """
    with torch.no_grad():
        plain = _plain(tensor.detach())
        if plain.is_meta or plain.numel() == 0:
            return TensorSketch(norm=0.0, projection=(), numel=plain.numel())
        if plain.numel() <= SKETCH_SIZE:
            return _exact(plain)
        return _hashed(plain)


def pseudo_random(numel: int) -> torch.Tensor:
    """`numel` fixed numbers between -1 and 1, in float64 on the CPU, from the hashes of their positions."""
    words = _hash(torch.arange(1, numel + 1, dtype=torch.int64, device="cpu"))
    return words.to(torch.float64).div_(2.0**31).sub_(1.0)


def state_signature(tensor: torch.Tensor) -> str:
    """Dtype and shape of an entry of a state_dict: "float32 [3, 4]"."""
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """The same elements as a strided or sparse COO tensor of real numbers."""
    if hasattr(tensor, "to_local"):  # DTensor: what this process holds
        tensor = tensor.to_local()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.layout not in (torch.strided, torch.sparse_coo):
        tensor = tensor.to_dense() if tensor.layout is torch._mkldnn else tensor.to_sparse()  # type: ignore[attr-defined]
    if tensor.layout is torch.sparse_coo:
        tensor = tensor.coalesce()
        if tensor.is_complex():
            values = torch.view_as_real(tensor.values().resolve_conj())
            return torch.sparse_coo_tensor(
                tensor.indices(), values, (*tensor.shape, 2), check_invariants=False, is_coalesced=True
            )
        return tensor
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def _exact(tensor: torch.Tensor) -> TensorSketch:
    dense = tensor.to_dense() if tensor.is_sparse else tensor
    values = [float(value) for value in dense.to("cpu", torch.float64).reshape(-1).tolist()]
    return TensorSketch(norm=_norm(values), projection=tuple(values), numel=len(values))


def _norm(values: list[float]) -> float:
    if any(math.isnan(value) for value in values):
        return math.nan
    return math.sqrt(math.fsum(value * value for value in values))


def _hashed(tensor: torch.Tensor) -> TensorSketch:
    # One row of sums per chunk, brought to the host at the end: one synchronisation for a tensor on a GPU.
    sums, squares = [], []
    for start, chunk in _chunks(tensor):
        chunk_sums, chunk_squares = _bucket_sums(chunk, start)
        sums.append(chunk_sums)
        squares.append(chunk_squares)
    if not sums:
        return TensorSketch(norm=0.0, projection=(0.0,) * SKETCH_SIZE, numel=tensor.numel())
    projection = torch.stack(sums).cpu().sum(0)
    square = float(torch.stack(squares).cpu().sum(0).sum())
    return TensorSketch(norm=math.sqrt(square), projection=tuple(projection.tolist()), numel=tensor.numel())


def _bucket_sums(chunk: torch.Tensor, start: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The 64 signed sums and the 64 sums of squares of a flat chunk whose first element has position `start`."""
    padded_numel = max(SKETCH_SIZE, 1 << (chunk.numel() - 1).bit_length())
    values = torch.zeros(padded_numel, dtype=torch.float64, device=chunk.device)
    values[: chunk.numel()] = chunk
    rows = values.index_select(0, _permutation(padded_numel, str(chunk.device))).view(SKETCH_SIZE, -1)
    squares = rows.square().sum(1)
    sums = rows.mul_(_signs(start, padded_numel, chunk.device).view(SKETCH_SIZE, -1)).sum(1)
    # The permutation is the same in all chunks; turning the buckets keeps equal places of two chunks apart.
    return sums.roll(_hash_of_int(start // CHUNK_NUMEL) % SKETCH_SIZE), squares


def _signs(start: int, numel: int, device: torch.device) -> torch.Tensor:
    """Pseudo-random -1.0 and 1.0 for `numel` (permuted) positions from `start` on: the bits of one hash for 32."""
    first = start // _BITS_PER_HASH
    words = torch.arange(first, first + max(1, numel // _BITS_PER_HASH), dtype=torch.int64, device=device)
    shifts = torch.arange(_BITS_PER_HASH, dtype=torch.int64, device=device)
    bits = (_hash(words)[:, None] >> shifts).bitwise_and_(1)
    return bits.view(-1).to(torch.float64).mul_(2.0).sub_(1.0)


@functools.lru_cache(maxsize=64)
def _permutation(numel: int, device: str) -> torch.Tensor:
    """A fixed pseudo-random order of `numel` elements: the order of their hashes, of which no two are equal."""
    keys = _hash(torch.arange(numel, dtype=torch.int64, device="cpu") + (numel << 1))
    return torch.argsort(keys, stable=True).to(device)


def _hash(words: torch.Tensor) -> torch.Tensor:
    """Chris Wellons' lowbias32 of each word, in place: a bijection of 32-bit integers.

    Source: https://nullprogram.com/blog/2018/07/31/. The products fit in 63 bits, so nothing overflows.
    """
    words.bitwise_and_(_MASK)
    words ^= words >> 16
    words.mul_(0x7FEB352D).bitwise_and_(_MASK)
    words ^= words >> 15
    words.mul_(0x846CA68B - (1 << 32)).bitwise_and_(_MASK)
    words ^= words >> 16
    return words


def _hash_of_int(word: int) -> int:
    word ^= word >> 16
    word = word * 0x7FEB352D & _MASK
    word ^= word >> 15
    word = word * 0x846CA68B & _MASK
    return word ^ word >> 16


def _chunks(tensor: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
    """Position of the first element and the elements, flat, for each chunk; chunks of zeros may be left out."""
    if tensor.is_sparse:
        yield from _chunks_of_rows(tensor, *_sparse_rows(tensor))
    elif tensor.is_contiguous():
        flat = tensor.view(-1)
        for start in range(0, tensor.numel(), CHUNK_NUMEL):
            yield start, flat[start : start + CHUNK_NUMEL]
    else:
        row_numel = tensor.numel() // tensor.shape[0]
        yield from _chunks_of_rows(tensor, row_numel, lambda first, last: tensor[first:last].reshape(-1))


def _chunks_of_rows(tensor: torch.Tensor, row_numel: int, read: _Read) -> Iterator[tuple[int, torch.Tensor]]:
    for start in range(0, tensor.numel(), CHUNK_NUMEL):
        stop = min(start + CHUNK_NUMEL, tensor.numel())
        first, last = start // row_numel, -(-stop // row_numel)
        values = read(first, last)
        if values.numel():
            yield start, values[start - first * row_numel : stop - first * row_numel]


def _sparse_rows(tensor: torch.Tensor) -> tuple[int, _Read]:
    """Elements per row of a coalesced COO tensor, and how to read rows: only the asked-for ones become dense.

    A row is what one index addresses; a read of rows that hold nothing gives an empty tensor.
    """
    values = tensor.values()
    row_numel = math.prod(values.shape[1:])
    indices = tensor.indices()
    rows = torch.zeros(values.shape[0], dtype=torch.int64, device=values.device)
    for dimension in range(tensor.sparse_dim()):
        rows = rows * tensor.shape[dimension] + indices[dimension]
    sorted_rows = rows.cpu()

    def read(first: int, last: int) -> torch.Tensor:
        low, high = torch.searchsorted(sorted_rows, torch.tensor([first, last], device="cpu")).tolist()
        if low == high:
            return values.new_empty(0)
        dense = torch.zeros(last - first, row_numel, dtype=values.dtype, device=values.device)
        dense[rows[low:high] - first] = values[low:high].reshape(high - low, row_numel)
        return dense.view(-1)

    return row_numel, read
