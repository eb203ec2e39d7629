"""Tests client.jobs.submit(dataset, module) against the real daemon."""

import copy

import permafrost
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import torch_geometric.nn as gnn
from torch import nn
from torch_geometric.data import Batch, Data

from tests.python.nets import WIDTH, mlp

pytestmark = pytest.mark.usefixtures("one_thread")


class Molecules(nn.Module):
    def __init__(self):
        super().__init__()
        self.nodes, self.bonds = nn.Embedding(9, WIDTH), nn.Embedding(4, WIDTH)
        self.conv, self.norm, self.head = gnn.GINEConv(mlp(WIDTH, WIDTH)), nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, 1)

    def forward(self, x, edge_index, edge_attr, batch):
        h = self.norm(self.conv(self.nodes(x[:, 0]), edge_index, self.bonds(edge_attr))).relu()
        return self.head(gnn.global_add_pool(h, batch)).squeeze(-1)


def zinc(count=60):
    generator = torch.Generator().manual_seed(0)
    graphs = []
    for i in range(count):
        nodes = 5 + i % 7
        edges = torch.randint(0, nodes, (2, 2 * nodes), generator=generator)
        # Every category occurs, so that the server renumbers none.
        x, e = torch.randint(0, 9, (nodes, 1), generator=generator), torch.randint(0, 4, (2 * nodes,), generator=generator)
        x[0], e[0] = i % 9, i % 4
        graphs.append(Data(x=x, edge_index=edges, edge_attr=e, y=torch.randn(1, generator=generator)))
    return graphs


@pytest.fixture(scope="module")
def molecules(client):
    graphs = zinc()
    client.datasets.import_pyg({"train": graphs[:40], "valid": graphs[40:50], "test": graphs[50:]}, "own-zinc", progress=False)
    return graphs


def test_a_module_is_trained_and_comes_back(client, molecules):
    torch.manual_seed(1)
    module = Molecules()
    untrained = copy.deepcopy(module)
    job = client.jobs.submit("own-zinc", module, loss="l1", epochs=3, batch_size=8).wait()
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), untrained.parameters(), strict=True))
    assert job.load_into(module) is module and module.training
    assert not torch.equal(module.head.weight, untrained.head.weight)
    predicted = list(job.predictions(rows="test").values())
    batch = Batch.from_data_list(molecules[50:])
    with torch.no_grad():
        own = module.eval()(batch.x, batch.edge_index, batch.edge_attr, batch.batch)
    torch.testing.assert_close(own.unsqueeze(1), torch.tensor(predicted), rtol=1e-4, atol=1e-5)
    with pytest.raises(permafrost.InputError, match=r"to_pyg: job .* trains a program; accepted: job.load_into\(module\)"):
        job.to_pyg()
    assert "molecules-" in job._repr_html_()


def test_a_program_is_trained_by_its_name(client, molecules, tmp_path):
    path = permafrost.export(Molecules(), molecules[:2], tmp_path / "net.pt2")
    program = client.programs.import_file("net", path, progress=False)
    assert set(program.inputs) == {"x", "edge_index", "edge_attr", "batch", "num_graphs"}
    for model in (program, {"program": "net"}):
        assert client.jobs.submit("own-zinc", model, loss="l1", epochs=1).wait().state == "succeeded"
    assert client.jobs.submit("own-zinc", program="net", loss="l1", epochs=1).wait().state == "succeeded"
