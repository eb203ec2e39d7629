"""Tests modules of the user's own on one large graph, whole and with sampled neighbours: PyTorch's losses, one executable, and the weights
back."""

import copy

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import torch_geometric.nn as gnn
from safetensors.torch import load_file
from torch import nn

import permafrost

from tests.python.program_graphs import (
    CLASSES, GENTLE_RATE, LEARNING_RATE, MODULES, SEED, STEPS, TOLERANCE, WIDTH, Net, blocks, call, check_one_executable, check_predictions,
    losses_of, make, relative, submit, train,
)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def graph(client):
    """Imports the dataset "communities", and returns its graph."""
    data = blocks()
    client.datasets.import_pyg(data, "communities", progress=False)
    return data


@pytest.mark.parametrize("name", MODULES)
def test_the_whole_graph_trains_as_in_pytorch(name, client, graph):
    module = make(name)
    job = submit(client, module, epochs=STEPS, learning_rate=GENTLE_RATE).wait()
    expected = train(copy.deepcopy(module), graph, GENTLE_RATE)
    assert relative(losses_of(job), expected) < TOLERANCE
    assert expected[-1] < 0.9 * expected[0]
    check_predictions(job, module, graph)
    check_one_executable(client, job, dynamic=False)


# GCN and similar models count only sampled edges in degrees, as with PyG's NeighborLoader.
EXACT = sorted(set(MODULES) - {"gcn", "gcn-weighted", "cheb", "tag"})


@pytest.mark.parametrize("name", EXACT)
def test_every_neighbour_sampled_is_the_whole_graph(name, client, graph):
    module = make(name)
    job = submit(client, module, epochs=STEPS, learning_rate=GENTLE_RATE, batch_size=120, fan_outs=[-1, -1]).wait()
    assert relative(losses_of(job), train(copy.deepcopy(module), graph, GENTLE_RATE)) < TOLERANCE
    check_one_executable(client, job, dynamic=True)
    check_predictions(job, module, graph)


@pytest.mark.parametrize("name", MODULES)
def test_sampled_batches_of_any_shape_have_one_executable(name, client, graph):
    module = make(name, dropout=0.2)
    job = submit(client, module, epochs=20, batch_size=32, fan_outs=[4, 3]).wait()
    check_one_executable(client, job, dynamic=True)
    losses = losses_of(job)
    assert losses[-1] < 0.9 * losses[0]
    # There are four classes.
    assert job.result["best_test_metrics"]["accuracy"] > 0.4


OPTIONS = {
    "eval-fan-outs": {"eval_fan_outs": [-1, -1, 2]},
    "labor": {"sampler": "labor"},
    "disjoint": {"disjoint": True},
    "replace": {"replace": True},
    "weighted": {"weighted": True},
    "bounded": {"batching": {"kind": "budget", "max_nodes": 150}},
    "exact": {"graph_cache": {"policy": "always", "shapes": "exact"}},
    "never": {"graph_cache": {"policy": "never"}},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_every_way_to_sample_serves_programs(name, client, graph):
    job = submit(client, make("gcn-weighted"), epochs=12, batch_size=32, fan_outs=[4, 3], **OPTIONS[name]).wait()
    losses = losses_of(job)
    assert losses[-1] < 0.95 * losses[0]
    train = client.cache(job).stats()["train"]
    if name == "never":
        assert (train["captures"], train["eager_steps"]) == (0, 48)
    elif name == "exact":
        assert train["captures"] > 10 and not train["dynamic"] and train["eager_steps"] == 0
    else:
        check_one_executable(client, job, dynamic=True)
    if name == "eval-fan-outs":
        module = make("sage")
        job = submit(client, module, epochs=3, batch_size=32, fan_outs=[2, 2], eval_fan_outs=[-1, -1]).wait()
        check_predictions(job, module, graph)


def test_a_batch_of_one_seed_or_of_no_edge_is_run_as_it_is(client, graph):
    """The step is eager, because an executable for every shape is recorded on at least two rows."""
    job = submit(client, make("gcn-weighted"), epochs=2, batch_size=119, fan_outs=[2, 2]).wait()
    stats = client.cache(job).stats()["train"]
    assert (stats["captures"], stats["eager_steps"]) == (1, 2)
    with pytest.raises(permafrost.InvalidArgument, match="a batch has one seed"):
        submit(client, make("gcn-weighted"), batch_size=119, fan_outs=[2, 2], graph_cache={"policy": "freeze", "strict": True})

    lone = blocks()
    lone.edge_index, lone.edge_weight, lone.edge_attr = lone.edge_index[:, :40], lone.edge_weight[:40], lone.edge_attr[:40].long()
    client.datasets.import_pyg(lone, "sparse-edges", progress=False)

    class Kinds(Net):
        def forward(self, x, edge_index, edge_attr, edge_weight):
            h = self.run(x, edge_index, ())
            return h + self.kinds(edge_attr[:, 0]).sum() * 0.01 * edge_weight.sum()

    module = Kinds(gnn.SAGEConv)
    module.kinds = nn.Embedding(3, 1)
    for batch_size in (1, 2, 7):
        losses = losses_of(submit(client, module, dataset="sparse-edges", epochs=2, batch_size=batch_size, fan_outs=[2, 2]).wait())
        assert torch.isfinite(losses).all()


def test_several_targets_of_a_node_are_learned(client):
    """Labels may be missing. A batch in which no node has a label has a loss of 0."""
    data = blocks()
    data.y = torch.stack([data.x[:, 0], data.x[:, 1] * 2], 1)
    data.y[::3, 0] = float("nan")
    data.y[data.train_mask.nonzero().flatten()[:90]] = float("nan")
    client.datasets.import_pyg(data, "two-targets", progress=False)

    class Two(Net):
        def __init__(self):
            super().__init__(gnn.SAGEConv)
            self.second = gnn.SAGEConv(WIDTH, 2)

    class OwnTwo(Two):
        def forward(self, x, edge_index, y):
            h = self.run(x, edge_index, ())
            known = ~y.isnan()
            return h, torch.where(known, (h - y.nan_to_num()).square(), 0.0).sum() / known.sum()

    class Multiplied(Two):
        """A module whose gradients are 0 * NaN if no label is known."""

        def forward(self, x, edge_index, y):
            h, known = self.run(x, edge_index, ()), ~y.isnan()
            return h, ((h - y.nan_to_num()).square() * known).sum() / known.sum()

    for cls in (Two, OwnTwo, Multiplied):
        torch.manual_seed(3)
        job = client.jobs.submit("two-targets", cls(), loss="mse", epochs=20, batch_size=8, fan_outs=[4, 3], learning_rate=0.01, seed=SEED).wait()
        losses = losses_of(job)
        assert torch.isfinite(losses).all() and losses[-1] < 0.9 * losses[0], cls


def test_a_killed_daemon_goes_on_to_the_same_bits(make_server, tmp_path):
    server = make_server()
    client = server.connect()
    client.datasets.import_pyg(blocks(), "communities", progress=False)

    def weights(job):
        return load_file(job.export(tmp_path / "weights", "last_weights"))

    for name, sampled in (("sage", {"fan_outs": [4, 3], "batch_size": 32}), ("gcn", {})):
        module = make(name, dropout=0.3)
        epochs = 40 if sampled else 160
        wanted = weights(submit(client, module, epochs=epochs, every_steps=7, **sampled).wait())
        job = submit(client, module, epochs=epochs, every_steps=7, **sampled)
        next(state for state in job.states() if state.proto.progress.step > 20)
        server.kill()
        server.start()
        made = weights(job.wait())
        assert job.proto.resumes == 1, name
        assert made.keys() == wanted.keys() and all(torch.equal(made[key], wanted[key]) for key in wanted), name


def test_what_no_program_can_do_on_a_large_graph_is_refused(client, graph):
    def refused(module=None, **spec):
        with pytest.raises(permafrost.InvalidArgument) as caught:
            submit(client, module or make("sage"), **spec)
        return {violation.field: violation.description for violation in caught.value.violations}

    assert "accepted: without" in refused(fan_outs=[2, 2], layer_wise_evaluation=True)["spec.neighbor_sampling.layer_wise_evaluation"]
    assert "learned is given for a program" in refused(node_inputs="learned")["spec.model.node_inputs"]
    assert "accepted: dot" in refused(link_prediction={"decoder": "mlp"})["spec.link_prediction.decoder"]
    assert "is given for a program" in refused(normalize_features=True)["spec.model.normalize_features"]
    assert "edge_inputs" in str(refused(edge_inputs="weights"))

    wide = Net(gnn.SAGEConv)
    wide.second = gnn.SAGEConv(WIDTH, CLASSES + 1)
    told = refused(wide)["spec.model.program"]
    assert f"[33, {CLASSES + 1}]" not in told and f", {CLASSES}] is accepted: a row for each node" in told


def test_inputs_that_the_graph_lacks_are_named(client, graph, tmp_path):
    data = blocks()
    del data.edge_weight, data.edge_attr, data.pos
    client.datasets.import_pyg(data, "unweighted", progress=False)
    for name, told in (("placed", 'input "pos": the dataset has no such features'),
                       ("gcn-weighted", 'input "edge_weight": the dataset\'s edges have no weights'),
                       ("transformer", 'input "edge_attr": the dataset has no such features')):
        path = permafrost.export(make(name), blocks(), tmp_path / f"{name}.pt2")
        program = client.programs.import_file(name, path, progress=False)
        with pytest.raises(permafrost.InvalidArgument) as caught:
            submit(client, program, dataset="unweighted")
        assert told in caught.value.violations[0].description
        # For a module, the client reports what the dataset lacks before it sends anything.
        with pytest.raises(permafrost.InputError, match="edge_weight|edge_attr|pos is missing"):
            submit(client, make(name), dataset="unweighted")
    job = submit(client, make("placed"), epochs=1).wait()
    with pytest.raises(permafrost.InvalidArgument, match='input "pos": the dataset has no such features'):
        job.predictions(dataset="unweighted", rows="test")


def test_self_loops_are_told_and_run_eagerly(client):
    client.datasets.import_pyg(blocks(self_loops=3), "looped", progress=False)
    with pytest.warns(UserWarning, match="3 edges of the dataset are such"):
        job = submit(client, make("gcn"), dataset="looped", epochs=5).wait()
    modes = client.cache(job).stats()
    assert (modes["train"]["captures"], modes["train"]["eager_steps"]) == (0, 5)
    data = blocks(self_loops=3)
    assert relative(losses_of(job), train(make("gcn"), data)[:5]) < TOLERANCE


def write_ogb(folder, data, sparse):
    """Writes a graph whose features are 0 and 1 in OGB's layout: as a table, or as the columns that are 1."""
    for part in ("raw", "split/time"):
        (folder / part).mkdir(parents=True)

    def write(name, rows):
        (folder / f"{name}.csv").write_text("".join(",".join(str(value) for value in row) + "\n" for row in rows))

    write("raw/edge", data.edge_index.T.tolist())
    write("raw/num-node-list", [[data.num_nodes]])
    write("raw/num-edge-list", [[data.num_edges]])
    write("raw/node-label", data.y.view(-1, 1).tolist())
    write(*(("raw/node-feat-sparse", data.x.nonzero().tolist()) if sparse else ("raw/node-feat", data.x.int().tolist())))
    for split, mask in (("train", data.train_mask), ("valid", data.val_mask), ("test", data.test_mask)):
        write(f"split/time/{split}", mask.nonzero().tolist())
    return folder


def test_sparse_features_are_read_as_dense_ones(client, server):
    """The module takes [N, columns] floats, with the whole graph and with sampled neighbours."""
    data = blocks()
    data.x = (data.x > 0.5).float()
    data.x[:, -1] = 1  # every column occurs
    for name in ("sparse", "dense"):
        write_ogb(server.import_root / name, data, name == "sparse")
        client.datasets.import_path(server.import_root / name, f"of-{name}", progress=False)
    kind = client.datasets.get("of-sparse").proto.graph.node_features.data_type
    assert kind != client.datasets.get("of-dense").proto.graph.node_features.data_type
    for spec in ({}, {"fan_outs": [3, 3], "batch_size": 50}):
        losses = [losses_of(submit(client, make("gcn"), dataset=f"of-{name}", epochs=10, **spec).wait()) for name in ("sparse", "dense")]
        assert torch.equal(*losses)


def test_weights_evaluate_another_graph(client, graph):
    """The other graph has other features in the same columns, but no weights and no edge features."""
    job = submit(client, make("sage"), epochs=30).wait()
    other = blocks()
    del other.edge_weight, other.edge_attr
    other.x = other.x + 0.1 * torch.randn(other.x.shape, generator=torch.Generator().manual_seed(9))
    client.datasets.import_pyg(other, "others", progress=False)
    module = make("sage")
    job.load_into(module.eval())
    with torch.no_grad():
        own = call(module, other)[other.test_mask]
    made = torch.tensor(list(job.predictions(dataset="others", rows="test").values()))
    torch.testing.assert_close(made, own, rtol=1e-3, atol=1e-4)


class OwnLoss(Net):
    """Smooths labels. Nodes outside the seeds of the split have the label -100, which cross-entropy ignores."""

    def forward(self, x, edge_index, y):
        h = self.run(x, edge_index, ())
        return h, nn.functional.cross_entropy(h, y, label_smoothing=0.2)


@pytest.mark.parametrize("sampled", [{}, {"fan_outs": [-1, -1], "batch_size": 120}])
def test_a_loss_of_the_module_is_trained(sampled, client, graph):
    torch.manual_seed(3)
    module = OwnLoss(gnn.SAGEConv)
    job = submit(client, module, epochs=STEPS, **sampled).wait()
    twin = copy.deepcopy(module)
    optimizer = torch.optim.SGD(twin.parameters(), lr=LEARNING_RATE)
    y = graph.y.where(graph.train_mask, -100)
    expected = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = twin(graph.x, graph.edge_index, y)[1]
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    assert relative(losses_of(job), torch.tensor(expected)) < TOLERANCE
    check_one_executable(client, job, dynamic=bool(sampled))
    with pytest.raises(permafrost.InvalidArgument, match="class_weights: is given for a program that returns a loss of its own"):
        submit(client, module, class_weights=[1.0] * CLASSES)
    with pytest.raises(permafrost.InvalidArgument, match="returns a loss of its own"):
        client.jobs.submit("communities", program=job.proto.spec.model.program, link_prediction={})
