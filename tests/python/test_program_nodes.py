"""Modules of the user's own on one large graph, whole and by sampled neighbours: losses of PyTorch, one executable, and the weights back."""

import copy

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import torch_geometric.nn as gnn
from safetensors.torch import load_file
from torch import nn
from torch_geometric.data import Data

import permafrost

pytestmark = pytest.mark.usefixtures("one_thread")

NODES, COLUMNS, CLASSES, WIDTH = 240, 12, 4, 8
STEPS, LEARNING_RATE, SEED = 50, 0.1, 6
# Our sums round differently from PyTorch's. These tests use SGD: where a gradient is 0 up to rounding, as for attention to a single
# neighbour, Adam would take a full step.
TOLERANCE = 1e-4


class Net(nn.Module):
    """Two layers of a convolution. reads: "edge_weight" or "edge_attr", or nothing of edges."""

    def __init__(self, conv, reads="", dropout=0.0):
        super().__init__()
        self.first, self.second = conv(COLUMNS, WIDTH), conv(WIDTH, CLASSES)
        self.norm, self.reads, self.dropout = nn.LayerNorm(WIDTH), reads, dropout

    def run(self, x, edge_index, of_edges):
        h = self.norm(self.first(x, edge_index, *of_edges)).relu()
        return self.second(nn.functional.dropout(h, self.dropout, self.training), edge_index, *of_edges)

    def forward(self, x, edge_index):
        return self.run(x, edge_index, ())


class Weighted(Net):
    def forward(self, x, edge_index, edge_weight):
        return self.run(x, edge_index, (edge_weight,))


class Featured(Net):
    def forward(self, x, edge_index, edge_attr):
        return self.run(x, edge_index, (edge_attr,))


class OfSeeds(Net):
    """Predicts for the seeds of a batch alone, as is usual with PyG's NeighborLoader."""

    def forward(self, x, edge_index, batch_size: int):
        return self.run(x, edge_index, ())[:batch_size]


class Placed(Net):
    """Reads where nodes lie: by PointNet's messages, and then by messages that fade with the distance, as SchNet's do."""

    def __init__(self):
        super().__init__(lambda i, o: gnn.PointNetConv(nn.Linear(i + 3, WIDTH), nn.Linear(WIDTH, o)))
        self.second = nn.Linear(WIDTH, CLASSES)

    def forward(self, x, pos, edge_index):
        h = self.norm(self.first(x, pos, edge_index)).relu()
        source, target = edge_index
        near = torch.exp(-(pos[source] - pos[target]).norm(dim=1, keepdim=True))
        return self.second(h + torch.zeros_like(h).index_add(0, target, near * h[source]))


class FromData(Net):
    """Takes a Data, as many of PyG's examples do."""

    def forward(self, data):
        return self.run(data.x, data.edge_index, ())


MODULES = {
    "gcn": lambda: Net(gnn.GCNConv),
    "gcn-weighted": lambda: Weighted(gnn.GCNConv),
    "graph-conv": lambda: Weighted(lambda i, o: gnn.GraphConv(i, o, aggr="mean")),
    "sage": lambda: FromData(gnn.SAGEConv),
    "gat": lambda: Net(lambda i, o: gnn.GATConv(i, o, heads=2, concat=False)),
    "gatv2-edges": lambda: Featured(lambda i, o: gnn.GATv2Conv(i, o, edge_dim=3, add_self_loops=False)),
    "transformer": lambda: Featured(lambda i, o: gnn.TransformerConv(i, o, edge_dim=3)),
    "seeds": lambda: OfSeeds(gnn.SAGEConv),
    "tag": lambda: Net(lambda i, o: gnn.TAGConv(i, o, K=2)),
    "cheb": lambda: Net(lambda i, o: gnn.ChebConv(i, o, K=2)),
    "placed": Placed,
    "gin": lambda: Net(lambda i, o: gnn.GINConv(nn.Sequential(nn.Linear(i, WIDTH), nn.ReLU(), nn.Linear(WIDTH, o)))),
}


def make(name, **options):
    torch.manual_seed(3)
    module = MODULES[name]()
    for option, value in options.items():
        setattr(module, option, value)
    return module


def blocks(self_loops=0, across=0.2):
    """A graph of communities, with edges in both directions, by their targets as the server has them. across: the part of edges between
    communities that is kept."""
    draw = torch.Generator().manual_seed(1)
    y = torch.arange(NODES) % CLASSES
    source, target = torch.randint(0, NODES, (2, 6 * NODES), generator=draw)
    kept = (source != target) & ((y[source] == y[target]) | (torch.rand(len(source), generator=draw) < across))
    pairs = torch.unique(torch.stack([source.minimum(target), source.maximum(target)])[:, kept], dim=1)
    edges = torch.cat([pairs, pairs.flip(0), torch.arange(self_loops).expand(2, -1)], 1)
    edges = edges[:, edges[0].argsort(stable=True)]
    edges = edges[:, edges[1].argsort(stable=True)]
    low, high = edges.min(0)[0], edges.max(0)[0]
    place = torch.randperm(NODES, generator=draw)
    masks = {f"{split}_mask": torch.isin(torch.arange(NODES), part)
             for split, part in zip(("train", "val", "test"), place.split([120, 60, 60]), strict=True)}
    x = torch.randn(NODES, COLUMNS, generator=draw) + nn.functional.one_hot(y, COLUMNS)
    # An edge has the same features in both directions.
    return Data(x=x, pos=torch.randn(NODES, 3, generator=draw), edge_index=edges, y=y, edge_attr=torch.stack([low % 3, high % 5, (low + high) % 2], 1).float(),
                edge_weight=0.5 + (low * high % 7) / 7, **masks)


@pytest.fixture(scope="module")
def graph(client):
    """The graph of a dataset "communities" that the server has."""
    data = blocks()
    client.datasets.import_pyg(data, "communities", progress=False)
    return data


def call(module, data):
    if isinstance(module, FromData):
        return module(data)
    if isinstance(module, OfSeeds):
        return module(data.x, data.edge_index, data.num_nodes)
    if isinstance(module, Placed):
        return module(data.x, data.pos, data.edge_index)
    of_edges = {Weighted: (data.edge_weight,), Featured: (data.edge_attr,)}.get(type(module), ())
    return module(data.x, data.edge_index, *of_edges)


def train(module, data):
    """Losses of steps on the whole graph."""
    optimizer = torch.optim.SGD(module.parameters(), lr=LEARNING_RATE)
    module.train()
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(call(module, data)[data.train_mask], data.y[data.train_mask])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses)


def submit(client, module, dataset="communities", **spec):
    return client.jobs.submit(dataset, module, loss="cross_entropy", optimizer="sgd", learning_rate=LEARNING_RATE, seed=SEED, **spec)


def losses_of(job):
    return torch.tensor([epoch["train_loss"] for epoch in job.epochs()])


def relative(made, wanted):
    return ((made - wanted).abs() / wanted.abs()).max().item()


def check_one_executable(client, job, *, dynamic):
    for mode in client.cache(job).stats().values():
        assert {of: mode[of] for of in ("entries", "captures", "misses", "eager_steps")} == {
            "entries": 1, "captures": 1, "misses": 0, "eager_steps": 0}
        assert mode["dynamic"] == dynamic


def check_predictions(job, module, data):
    """Checks that a module with the job's weights predicts as the job does."""
    job.load_into(module.eval())
    with torch.no_grad():
        own = call(module, data)
    predicted = job.predict()
    rows = [int(name) for name in predicted]
    assert rows == data.test_mask.nonzero().flatten().tolist()
    made = torch.tensor(list(predicted.values()))
    torch.testing.assert_close(made, own[rows], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", MODULES)
def test_the_whole_graph_trains_as_in_pytorch(name, client, graph):
    module = make(name)
    job = submit(client, module, epochs=STEPS).wait()
    expected = train(copy.deepcopy(module), graph)
    assert relative(losses_of(job), expected) < TOLERANCE
    assert expected[-1] < 0.9 * expected[0]
    check_predictions(job, module, graph)
    check_one_executable(client, job, dynamic=False)


# GCN and its like count only sampled edges in degrees, as with PyG's NeighborLoader.
EXACT = sorted(set(MODULES) - {"gcn", "gcn-weighted", "cheb", "tag"})


@pytest.mark.parametrize("name", EXACT)
def test_every_neighbour_sampled_is_the_whole_graph(name, client, graph):
    module = make(name)
    job = submit(client, module, epochs=STEPS, batch_size=120, fan_outs=[-1, -1]).wait()
    assert relative(losses_of(job), train(copy.deepcopy(module), graph)) < TOLERANCE
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
    """Its step is eager, since an executable for every shape is recorded on two rows and more."""
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
    """Labels may be missing; a batch in which no node has any has a loss of 0."""
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
        """Where no label is known, its gradients are 0 * NaN."""

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
        # For a module the client says what the dataset lacks, before anything is sent.
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
    """OGB's layout of a graph whose features are 0 and 1: a table, or the columns that are 1."""
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
    """The module takes [N, columns] floats, whole and sampled."""
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
    """The other graph has other features in the same columns, no weights and no features of edges."""
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
    """Smooths labels. Nodes that are no seeds of the split have the label -100, which cross-entropy ignores."""

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


class Encoder(Net):
    """Gives rows of nodes, between which links are scored."""

    def __init__(self):
        super().__init__(gnn.SAGEConv)
        self.second = gnn.SAGEConv(WIDTH, 6)


@pytest.mark.parametrize("sampled", [{}, {"fan_outs": [4, 3], "eval_fan_outs": [-1, -1], "batch_size": 64}])
def test_links_are_predicted_by_rows_of_a_module(sampled, client):
    data = blocks(across=0)
    if "cliques" not in [dataset.id for dataset in client.datasets]:
        client.datasets.import_pyg(data, "cliques", progress=False)
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
    # The rows are of the graph without the links that are held out.
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
    """Scores pairs itself. columns: of the scores; 0: they have no such dimension."""

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
def test_a_module_scores_pairs_itself(sampled, columns, client):
    data = blocks(across=0)
    if "cliques" not in [dataset.id for dataset in client.datasets]:
        client.datasets.import_pyg(data, "cliques", progress=False)
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
    """Each node has edges to all others but one, so that negatives are known."""
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


def test_pairs_that_no_job_has_are_refused(client, graph, tmp_path):
    with pytest.raises(permafrost.InputError, match="it takes edge_label_index; accepted: with link_prediction"):
        submit(client, PairScorer())
    with pytest.raises(permafrost.InvalidArgument, match=r"the module returns \[64, 2\], where \[64\] or \[64, 1\] is accepted: a score for"):
        client.jobs.submit("communities", PairScorer(2), link_prediction={})
    example = {"x": graph.x, "edge_index": graph.edge_index, "edge_label_index": graph.edge_index}
    path = permafrost.export(PairScorer(), example, tmp_path / "scorer.pt2")
    program = client.programs.import_file("scorer", path, progress=False)
    with pytest.raises(permafrost.InvalidArgument, match='input "edge_label_index": the job predicts no links; accepted: with link_prediction'):
        submit(client, program)
    job = client.jobs.submit("communities", program, link_prediction={}, epochs=1).wait()
    with pytest.raises(permafrost.InputError, match="trains a program"):
        job.predict(graph, graph.edge_index)
