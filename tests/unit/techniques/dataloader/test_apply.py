import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from fulltilt.technique import Applied, NoEffect
from fulltilt.techniques.dataloader import apply as module
from fulltilt.techniques.dataloader import sample
from fulltilt.techniques.dataloader.apply import apply
from fulltilt.techniques.dataloader.spec import DataloaderOptions
from fulltilt.testing.fake_site import FakeSite


class Numbers(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return torch.tensor(float(index)) + 0 * torch.rand(())


def loader(**settings):
    return DataLoader(Numbers(), batch_size=4, shuffle=True, **settings)


def order_of_three_epochs(loader, seed=0):
    torch.manual_seed(seed)
    epochs = [[value for batch in loader for value in batch.tolist()] for _ in range(3)]
    return epochs, torch.rand(1).item()


@pytest.mark.parametrize("own_generator", [False, True])
def test_persistent_workers_keep_the_order_of_samples_and_the_random_stream(own_generator):
    def generator():
        return torch.Generator().manual_seed(7) if own_generator else None

    expected = order_of_three_epochs(loader(num_workers=1, generator=generator()))
    found = loader(generator=generator())
    result = apply(FakeSite(loaders=found), DataloaderOptions(num_workers=1, persistent_workers=True))
    assert isinstance(result, Applied)
    assert order_of_three_epochs(found) == expected
    assert found.persistent_workers
    assert result.engaged() == "3 iterations begun with 1 workers"


def test_torch_itself_shuffles_otherwise_with_persistent_workers():
    """What the compensation is for."""
    epochs, _ = order_of_three_epochs(loader(num_workers=1))
    persistent, _ = order_of_three_epochs(loader(num_workers=1, persistent_workers=True))
    assert epochs[0] == persistent[0]
    assert epochs[1] != persistent[1]


def test_looking_at_a_sample_moves_no_random_stream():
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    apply(FakeSite(loaders=loader()), DataloaderOptions(num_workers=1))
    assert torch.equal(torch.rand(1), expected)


def test_without_workers_the_rules_of_the_constructor_hold():
    found = loader(num_workers=1, persistent_workers=True)
    result = apply(FakeSite(loaders=found), DataloaderOptions(num_workers=0))
    assert isinstance(result, Applied)
    assert (found.num_workers, found.prefetch_factor, found.persistent_workers) == (0, None, False)
    assert len(list(found)) == 3


def test_it_never_ran_is_no_proof():
    result = apply(FakeSite(loaders=loader()), DataloaderOptions(num_workers=1))
    assert result.engaged() is None


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(4))


@pytest.mark.parametrize(
    ("found", "options", "reason"),
    [
        (DataLoader(Stream()), DataloaderOptions(num_workers=2), "repeated"),
        (DataLoader(TensorDataset(torch.ones(2))), DataloaderOptions(num_workers=2), "in memory"),
        (loader(num_workers=2), DataloaderOptions(num_workers=2), "like that already"),
        (loader(), DataloaderOptions(pin_memory=True), "like that already"),
    ],
)
def test_a_reason_is_given_where_it_does_not_fit(found, options, reason):
    if torch.cuda.is_available() and options.pin_memory:
        pytest.skip("memory can be pinned here")
    result = apply(FakeSite(loaders=found), options)
    assert isinstance(result, NoEffect)
    assert reason in result.reason


def test_samples_on_a_device_are_a_reason(monkeypatch):
    class OnDevice:
        device = torch.device("cuda")

    monkeypatch.setattr(module.sample, "look", lambda loader: sample.Sample(tensors=(OnDevice(),)))
    assert "on a device" in apply(FakeSite(loaders=loader()), DataloaderOptions(num_workers=1)).reason


def test_too_little_shared_memory_is_a_reason(monkeypatch):
    monkeypatch.setattr(module, "_free_shared_memory", lambda: 8)
    result = apply(FakeSite(loaders=loader()), DataloaderOptions(num_workers=2, prefetch_factor=4))
    assert "/dev/shm" in result.reason


def test_a_dataset_that_cannot_be_pickled_is_a_reason_where_workers_are_not_forked(monkeypatch):
    monkeypatch.setattr(module.multiprocessing, "get_start_method", lambda allow_none: "spawn")
    found = DataLoader(Numbers(), collate_fn=lambda batch: batch)
    assert "pickled" in apply(FakeSite(loaders=found), DataloaderOptions(num_workers=1)).reason


class _OpensAtFirstSample(torch.utils.data.Dataset):
    handle = None

    def __len__(self):
        return 8

    def __getitem__(self, index):
        if self.handle is None:
            self.handle = object()
        return torch.tensor(float(index))


def test_what_a_dataset_opens_at_its_first_sample_is_left_to_the_workers():
    inner = _OpensAtFirstSample()
    loader = torch.utils.data.DataLoader(torch.utils.data.Subset(inner, range(4)))
    assert len(sample.look(loader).tensors) == 1
    assert "handle" not in vars(inner)
