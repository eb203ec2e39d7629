"""Tests modules of the user's own that predict links, by rows of nodes or by scores of pairs."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import torch_geometric.nn as gnn
from torch import nn
from torch_geometric.data import Data

import permafrost

from tests.python.program_graphs import COLUMNS, LEARNING_RATE, SEED, TOLERANCE, WIDTH, Net, blocks, losses_of, relative, submit

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def cliques(client):
    """Imports the dataset "cliques", and returns its graph, in which no edge joins two classes."""
    data = blocks(across=0)
    client.datasets.import_pyg(data, "cliques", progress=False)
    return data


class Encoder(Net):
    """Returns rows of nodes, between which the server scores links."""

    def __init__(self):
        super().__init__(gnn.SAGEConv)
        self.second = gnn.SAGEConv(WIDTH, 6)


@pytest.mark.parametrize("sampled", [{}, {"fan_outs": [4, 3], "eval_fan_outs": [-1, -1], "batch_size": 64}])
def test_links_are_predicted_by_rows_of_a_module(sampled, client, cliques):
    data = cliques
    torch.manual_seed(3)
    module = Encoder()
    job = client.jobs.submit("cliques", module, link_prediction={"valid_part": 0.1, "test_part": 0.1}, metrics=["roc_auc"], epochs=60,
                             learning_rate=0.01, seed=SEED, **sampled).wait()
    losses = losses_of(job)
    assert losses[-1] < 0.95 * losses[0]
    # Three quarters of the negatives lie between communities.
    assert job.result["best_test_metrics"]["roc_auc"] > 0.7
    stats = client.cache(job).stats()["train"]
    assert (stats["entries"], stats["captures"], stats["eager_steps"]) == (1, 1, 0)
    # The rows are computed on the graph without the held-out links.
    held_out = {split: job.predictions(rows=split) for split in ("valid", "test")}
    pairs = {(int(link.source), int(link.target)) for links in held_out.values() for link in links}
    kept = [(a, b) not in pairs and (b, a) not in pairs for a, b in data.edge_index.T.tolist()]
    job.load_into(module.eval())
    with torch.no_grad():
        rows = module(data.x, data.edge_index[:, torch.tensor(kept)])
    for links in held_out.values():
        ends = torch.tensor([(int(link.source), int(link.target)) for link in links])
        scores = torch.tensor([link.score for link in links])
        torch.testing.assert_close(scores, (rows[ends[:, 0]] * rows[ends[:, 1]]).sum(1), rtol=1e-3, atol=1e-4)


class PairScorer(Encoder):
    """Scores pairs itself. columns: the columns of the scores; 0 means that the scores have no such dimension."""

    def __init__(self, columns=0):
        super().__init__()
        self.pairs, self.columns = nn.Sequential(nn.Linear(12, WIDTH), nn.ReLU(), nn.Linear(WIDTH, max(1, columns))), columns

    def forward(self, x, edge_index, edge_label_index):
        h = self.run(x, edge_index, ())
        source, target = h[edge_label_index[0]], h[edge_label_index[1]]
        scores = self.pairs(torch.cat([source * target, (source - target).abs()], 1))
        return scores if self.columns else scores.squeeze(1)


def ends_of(links):
    return torch.tensor([(int(link.source), int(link.target)) for link in links]).T


@pytest.mark.parametrize("columns", [0, 1])
@pytest.mark.parametrize("sampled", [{}, {"fan_outs": [4, 3], "eval_fan_outs": [-1, -1], "batch_size": 64}], ids=["whole", "sampled"])
def test_a_module_scores_pairs_itself(sampled, columns, client, cliques):
    data = cliques
    torch.manual_seed(3)
    module = PairScorer(columns)
    job = client.jobs.submit("cliques", module, link_prediction={"valid_part": 0.1, "test_part": 0.1}, metrics=["roc_auc"], epochs=60,
                             learning_rate=0.01, seed=SEED, **sampled).wait()
    losses = losses_of(job)
    assert losses[-1] < 0.95 * losses[0]
    assert job.result["best_test_metrics"]["roc_auc"] > 0.7
    check_pairs_have_one_executable(client, job)
    held_out = {split: job.predictions(rows=split) for split in ("valid", "test")}
    pairs = {pair for links in held_out.values() for pair in map(tuple, ends_of(links).T.tolist())}
    kept = [(a, b) not in pairs and (b, a) not in pairs for a, b in data.edge_index.T.tolist()]
    job.load_into(module.eval())
    for links in (*held_out.values(), job.predict()):
        with torch.no_grad():
            own = module(data.x, data.edge_index[:, torch.tensor(kept)], ends_of(links)).flatten()
        torch.testing.assert_close(torch.tensor([link.score for link in links]), own, rtol=1e-3, atol=1e-4)


def check_pairs_have_one_executable(client, job):
    stats = client.cache(job).stats()["train"]
    assert (stats["entries"], stats["captures"], stats["misses"], stats["eager_steps"]) == (1, 1, 0, 0)


def test_pairs_train_as_in_pytorch(client):
    """Each node has edges to all others except one, so that the negatives are known."""
    nodes, steps = 24, 20
    every = torch.cartesian_prod(torch.arange(nodes), torch.arange(nodes)).T
    edges = every[:, (every[0] != every[1]) & (every[0] // 2 != every[1] // 2)]
    edges = edges[:, edges[1].argsort(stable=True)]
    data = Data(x=torch.randn(nodes, COLUMNS, generator=torch.Generator().manual_seed(1)), edge_index=edges)
    links = edges[:, edges[0] < edges[1]]
    held_out = links[:, ::10]
    links = links[:, torch.arange(links.shape[1]) % 10 > 0]
    part = {"edge": held_out.T, "edge_neg": torch.stack([held_out[0], held_out[0] ^ 1], 1)}
    client.datasets.import_pyg(data, "cocktail-party", link_split={"train": {"edge": links.T}, "valid": part, "test": part}, progress=False)
    edges = torch.cat([links, links.flip(0)], 1)
    torch.manual_seed(3)
    module = PairScorer()
    job = client.jobs.submit("cocktail-party", module, link_prediction={}, epochs=steps, optimizer="sgd", learning_rate=LEARNING_RATE,
                             seed=SEED).wait()
    pairs = torch.cat([links, torch.stack([links[0], links[0] ^ 1])], 1)
    labels = torch.cat([torch.ones(links.shape[1]), torch.zeros(links.shape[1])])
    optimizer = torch.optim.SGD(module.parameters(), lr=LEARNING_RATE)
    expected = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(module(data.x, edges, pairs), labels)
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    assert expected[-1] < 0.99 * expected[0]
    assert relative(losses_of(job), torch.tensor(expected)) < TOLERANCE
    check_pairs_have_one_executable(client, job)


def test_pairs_with_times_are_scored_by_a_module(client):
    data = blocks(across=0)
    data.edge_time = torch.arange(data.num_edges) % 50
    client.datasets.import_pyg(data, "timed", progress=False)
    torch.manual_seed(3)
    job = client.jobs.submit("timed", PairScorer(), link_prediction={"valid_part": 0.1, "test_part": 0.1}, epochs=3, learning_rate=0.01,
                             fan_outs=[4, 3], batch_size=64, temporal="last", seed=SEED).wait()
    assert torch.isfinite(losses_of(job)).all()
    assert all(link.score == link.score for link in job.predict())
    check_pairs_have_one_executable(client, job)


def test_pairs_that_no_job_has_are_refused(client, cliques, tmp_path):
    with pytest.raises(permafrost.InputError, match="it takes edge_label_index; accepted: with link_prediction"):
        submit(client, PairScorer(), dataset="cliques")
    with pytest.raises(permafrost.InvalidArgument, match=r"the module returns \[64, 2\], where \[64\] or \[64, 1\] is accepted: a score for"):
        client.jobs.submit("cliques", PairScorer(2), link_prediction={})
    example = {"x": cliques.x, "edge_index": cliques.edge_index, "edge_label_index": cliques.edge_index}
    path = permafrost.export(PairScorer(), example, tmp_path / "scorer.pt2")
    program = client.programs.import_file("scorer", path, progress=False)
    with pytest.raises(permafrost.InvalidArgument, match='input "edge_label_index": the job predicts no links; accepted: with link_prediction'):
        submit(client, program, dataset="cliques")
    job = client.jobs.submit("cliques", program, link_prediction={}, epochs=1).wait()
    with pytest.raises(permafrost.InputError, match="trains a program"):
        job.predict(cliques, cliques.edge_index)
