"""Jobs of programs that the server refuses."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import permafrost
import torch_geometric.nn as gnn
from torch import nn

from tests.python import zinc
from tests.python.nets import WIDTH

pytestmark = pytest.mark.usefixtures("one_thread")


class Plain(nn.Module):
    """Takes no features of edges."""

    def __init__(self):
        super().__init__()
        self.atoms, self.head = nn.Embedding(28, WIDTH), nn.Linear(WIDTH, 1)

    def forward(self, x, edge_index, batch, batch_size: int):
        h = self.atoms(x.view(-1))
        h = h + h.new_zeros(h.shape).index_add(0, edge_index[1], h[edge_index[0]])
        return self.head(gnn.global_mean_pool(h, batch, batch_size))


@pytest.fixture(scope="module")
def zinc_set(client):
    """A dataset "zinc-jobs" that the server has."""
    client.datasets.import_pyg(zinc.molecules(), "zinc-jobs", splits=zinc.PARTS, progress=False)
    return "zinc-jobs"


class Positions(nn.Module):
    """Takes a place for each node."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 1)

    def forward(self, pos, batch, batch_size: int):
        return self.head(gnn.global_mean_pool(pos, batch, batch_size))


def as_program(client, name, module, example, folder):
    return client.programs.import_file(name, permafrost.export(module, example, folder / f"{name}.pt2"), progress=False)


def refused(client, *submitted, **spec):
    """What the server says, by field."""
    with pytest.raises(permafrost.InvalidArgument) as caught:
        client.jobs.submit(*submitted, **spec)
    assert "\n" not in str(caught.value)
    return {violation.field: violation.description for violation in caught.value.violations}


def test_a_program_that_does_not_fit_is_refused(client, zinc_set, tmp_path):
    graph = zinc.molecules()[0]
    graph.pos = torch.rand(graph.num_nodes, 3)
    as_program(client, "positions", Positions(), graph, tmp_path)
    told = refused(client, zinc_set, program="positions")
    assert 'input "pos"' in told["spec.model.program"]



def test_a_field_of_our_own_models_is_refused(client, zinc_set, tmp_path):
    program = as_program(client, "plain", Plain(), zinc.molecules()[0], tmp_path)
    assert "spec.model.hidden_channels" in refused(client, zinc_set, program, hidden_channels=8)
    assert any("model" in field for field in refused(client, zinc_set, {"architecture": "gine", "program": "plain"}))
    with pytest.raises(permafrost.NotFound) as caught:
        client.jobs.submit(zinc_set, program="unknown")
    assert caught.value.reason == "PROGRAM_NOT_FOUND"
    assert "programs/unknown" in str(caught.value)
