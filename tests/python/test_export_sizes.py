"""Tests that numbers that a module infers from values become sizes of the program, and that Python's `int` stays as
it is."""

import dataclasses

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from torch import nn
from torch_geometric.utils import to_dense_batch
from torch_geometric.utils.num_nodes import maybe_num_nodes

from tests.python.net_data import another, example
from tests.python.test_export import read_program

pytestmark = pytest.mark.usefixtures("one_thread")


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.nodes = nn.Embedding(9, 4)

    def forward(self, x, edge_index, batch):
        h = self.nodes(x)
        return h.new_zeros(self.graphs(batch, edge_index), 4).index_add(0, batch, h)


@dataclasses.dataclass
class Settings:
    width: int = dataclasses.field(default_factory=int)


class PythonsInt(Base):
    """Uses `int` in every way, in a module that also infers sizes."""

    def forward(self, x, edge_index, batch):
        graphs = int(batch.max()) + 1
        last = [int(index.max()) for index in (batch,)][0]
        h, depth = self.nodes(x), Settings().width + int("3")
        scale = 1 if type(depth) is int and isinstance(depth, int) and issubclass(bool, int) else 1000
        ones = torch.ones(graphs, dtype=int)
        if ones.dtype is not torch.int64 or not all(map(int, [1, 2])):
            raise TypeError
        sums = h.new_zeros(last + 1, 4).index_add(0, batch, h)
        return sums * scale + ones.unsqueeze(-1)


class OfItem(Base):
    def graphs(self, batch, edge_index):
        return int(batch.max().item()) + 1


class AddsInPlace(Base):
    def graphs(self, batch, edge_index):
        largest = batch.max()
        largest += 1
        return int(largest)


class NamesItsOwn(Base):
    """Uses a local name `int`, which is not Python's."""

    def graphs(self, batch, edge_index):
        int = torch.Tensor.item
        return int(batch.max()) + 1


@pytest.mark.parametrize("cls", [PythonsInt, OfItem, AddsInPlace, NamesItsOwn])
def test_infers_sizes_and_leaves_int_alone(cls, tmp_path):
    from permafrost import export

    forward = cls.forward.__code__
    path = export(cls(), [example()] * 3, tmp_path / "program.pt2")
    programs, described = read_program(path)
    module = cls()
    module.load_state_dict(programs["train"].state_dict)
    _, values = another(cls.__name__)
    program = programs["train"].module()
    have = program(*(values[one["name"]] for one in described["inputs"]))
    assert torch.equal(have, module(values["x"], values["edge_index"], values["batch"]))
    assert cls.forward.__code__ is forward and "__permafrost_int__" not in cls.forward.__globals__


class OfFirst(Base):
    def graphs(self, batch, edge_index):
        return int(batch[:3].max()) + 5


class OfEdges(Base):
    def graphs(self, batch, edge_index):
        return int(batch[edge_index[0]].max()) + 1


class OfSources(Base):
    def graphs(self, batch, edge_index):
        return int(edge_index[0].max()) + 1


class OfMasked(Base):
    def graphs(self, batch, edge_index):
        return batch.masked_select(batch > 2).max().item() + 1


class OfNarrow(Base):
    def graphs(self, batch, edge_index):
        return int(batch.to(torch.int8).max()) + 1


class OfShifted(Base):
    def graphs(self, batch, edge_index):
        shifted = batch.clone()
        shifted += 5
        return int(shifted.max())


class AddsTwice(Base):
    def graphs(self, batch, edge_index):
        return int(torch.add(batch.max(), 1, alpha=2))


class CountsFromOne(Base):
    def graphs(self, batch, edge_index):
        ones = torch.ones_like(batch)
        return int(batch.new_ones(batch.numel()).scatter_add(0, batch, ones).max())


@pytest.mark.parametrize("cls", [OfFirst, OfEdges, OfSources, OfMasked, OfNarrow, OfShifted, AddsTwice, CountsFromOne])
def test_refuses_a_largest_value_that_is_no_size(cls, tmp_path):
    from permafrost import InputError, export

    with pytest.raises(InputError, match=r"depends on the values of a tensor") as caught:
        export(cls(), [example()] * 3, tmp_path / "program.pt2")
    assert str(caught.value).startswith("forward: " if cls is OfMasked else "test_export_sizes.py:")


def test_pyg_has_its_own_code_again(tmp_path):
    from permafrost import export

    functions = (maybe_num_nodes, to_dense_batch)
    before = [function.__code__ for function in functions]
    with pytest.raises(ValueError, match="depends on the values"):
        export(OfFirst(), [example()] * 3, tmp_path / "program.pt2")
    assert [function.__code__ for function in functions] == before
