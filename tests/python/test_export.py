"""permafrost.export: what it writes computes what the module computes, at other sizes; what it refuses."""

import copy
import json

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import torch_geometric.nn as gnn  # noqa: E402
from torch import nn  # noqa: E402
from torch.export.pt2_archive._package import load_pt2  # noqa: E402
from torch_geometric.data import Batch, Data  # noqa: E402

from tests.python.nets import NETS, Net, OfData  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread():
    """Sums of scattered rows are in one order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def graph(generator, nodes, edges, floats):
    def draw(*size, to=9):
        return torch.randint(0, to, size, generator=generator)

    x = torch.randn(nodes, 5, generator=generator) if floats else draw(nodes)
    return Data(x=x, edge_index=draw(2, edges, to=nodes), edge_attr=draw(edges, to=4), pos=torch.randn(nodes, 3, generator=generator),
                y=torch.randn(1, generator=generator))


def example(floats=False):
    return graph(torch.Generator().manual_seed(1), 6, 10, floats)


def another(name):
    """Values for a module, of sizes that it was not exported with; and the number of graphs and the largest graph's nodes."""
    generator = torch.Generator().manual_seed(2)
    sizes = [(4, 9)] if name in ("nodes", "links") else [(4, 9), (9, 17), (3, 4), (12, 31)]
    batch = Batch.from_data_list([graph(generator, *size, name in ("nodes", "links")) for size in sizes])
    values = {key: batch[key] for key in ("x", "edge_index", "edge_attr", "pos", "y", "batch")}
    values["edge_label_index"] = torch.randint(0, 4, (2, 6), generator=generator)
    return batch, {**values, "batch_size": len(sizes), "num_graphs": len(sizes), "max_num_nodes": 12}


def read_program(path):
    archive = load_pt2(str(path))
    return archive.exported_programs, json.loads(archive.extra_files["permafrost.json"])


def results(module, output):
    prediction, *loss = output if isinstance(output, tuple) else (output,)
    (loss[0] if loss else prediction.square().mean()).backward()
    return prediction, {key: value.grad for key, value in module.named_parameters() if value.grad is not None}


def call(name, module, batch, values):
    if name == "of_data":
        return module(batch)
    return module(**{key: values[key] for key in module.forward.__code__.co_varnames if key in values})


@pytest.mark.parametrize("name", NETS)
def test_computes_what_the_module_computes(name, tmp_path):
    from permafrost import export

    torch.manual_seed(3)
    module = NETS[name]()
    before = copy.deepcopy(module.state_dict())
    given = example(floats=name in ("nodes", "links"))
    if name == "links":
        given.edge_label_index, given.y = torch.tensor([[0, 1], [2, 3]]), None
    path = export(module, given, tmp_path / "program.pt2")
    assert module.training and all(torch.equal(value, before[key]) for key, value in module.state_dict().items())

    programs, described = read_program(path)
    batch, values = another(name)
    assert set(programs["train"].state_dict) == set(programs["eval"].state_dict) == set(before)
    for form, training in (("train", True), ("eval", False)):
        own, loaded = copy.deepcopy(module).train(training), programs[form].module()
        want, want_gradients = results(own, call(name, own, batch, values))
        have, gradients = results(loaded, loaded(*(values[one["name"]] for one in described["inputs"])))
        assert torch.equal(have, want), form
        # torch may call a weight that has several names by another of them.
        first = {name: names[0] for names in described["tied"] for name in names}
        gradients = {first.get(key, key): value for key, value in gradients.items()}
        want_gradients = {first.get(key, key): value for key, value in want_gradients.items()}
        assert want_gradients and gradients.keys() == want_gradients.keys()
        assert [key for key in gradients if not torch.equal(gradients[key], want_gradients[key])] == [], form
        state = own.state_dict()
        assert [key for key, value in loaded.state_dict().items() if not torch.equal(value, state[key])] == [], form
