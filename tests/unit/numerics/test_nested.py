import collections
import dataclasses

import torch

from fulltilt.numerics.nested import map_tensors, tensors_in

Point = collections.namedtuple("Point", ["x", "label"])


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: torch.Tensor
    name: str


@dataclasses.dataclass
class ModelOutput(collections.OrderedDict):
    """Like that of transformers: a dict and a dataclass whose fields and items are kept equal."""

    logits: torch.Tensor | None = None

    def __post_init__(self):
        self["logits"] = self.logits

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def __reduce__(self):
        return (ModelOutput, (self.logits,))


def double(tensor):
    return tensor.double()


def test_every_container_keeps_its_type_and_gets_new_tensors():
    one = torch.ones(1)
    value = {"a": [one, 3], "b": (one,), "c": Point(one, "p"), "d": Frozen(one, "f")}
    mapped = map_tensors(value, double)
    assert isinstance(mapped["c"], Point)
    assert isinstance(mapped["d"], Frozen)
    assert [tensor.dtype for tensor in tensors_in(mapped)] == [torch.float64] * 4
    assert (mapped["a"][1], mapped["c"].label, mapped["d"].name) == (3, "p", "f")


def test_containers_are_not_changed_in_place():
    value = {"a": [torch.ones(1)]}
    map_tensors(value, double)
    assert value["a"][0].dtype == torch.float32


def test_where_nothing_changes_the_same_object_comes_back():
    value = {"a": [torch.ones(1)], "b": Point(torch.ones(1), "p")}
    assert map_tensors(value, lambda tensor: tensor) is value


def test_a_model_output_has_the_new_tensor_as_item_and_as_attribute():
    mapped = map_tensors(ModelOutput(torch.ones(1)), double)
    assert type(mapped) is ModelOutput
    assert mapped.logits.dtype == mapped["logits"].dtype == torch.float64


def test_a_result_of_torch_max_keeps_its_type():
    result = torch.max(torch.ones(2, 2), dim=0)
    mapped = map_tensors(result, lambda tensor: tensor + 1)
    assert type(mapped) is type(result)
    assert mapped.values.tolist() == [2.0, 2.0]
