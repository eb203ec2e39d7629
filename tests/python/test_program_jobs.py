"""Tests jobs that train programs: killed, refused, and without the program that they began with."""

import subprocess

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import torch_geometric.nn as gnn
from safetensors.torch import load_file
from torch import nn
from torch_geometric.nn.models.schnet import GaussianSmearing, InteractionBlock

import permafrost
from bench import module_nets
from tests.python import zinc
from tests.python.nets import WIDTH

pytestmark = pytest.mark.usefixtures("one_thread")


class Dropping(module_nets.Net):
    """Has dropout of node features and batch norm."""

    def forward(self, x, edge_index, edge_attr, batch, batch_size: int):
        h = nn.functional.dropout(self.atoms(x.squeeze(-1)), 0.3, self.training)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            h = nn.functional.dropout(norm(conv(h, edge_index, self.bonds(edge_attr.view(-1)))).relu(), 0.2, self.training)
        return self.head(gnn.global_mean_pool(h, batch, batch_size))


class Noisy(module_nets.Net):
    """Draws random numbers in most of the ways in which modules do: noise, a Gumbel gate, edges and channels left out."""

    def forward(self, x, edge_index, edge_attr, batch, batch_size: int):
        h = self.atoms(x.squeeze(-1))
        if self.training:
            gumbel = -torch.empty_like(h).exponential_().log()
            h = (h + 0.1 * torch.randn_like(h)) * ((h + gumbel) / 0.5).sigmoid() + 0.05 * torch.rand(h.shape[0], 1)
            kept = torch.bernoulli(torch.full((edge_index.shape[1], 1), 0.8))
        else:
            kept = torch.ones(edge_index.shape[1], 1)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            h = norm(conv(h, edge_index, self.bonds(edge_attr.view(-1)) * kept)).relu()
        return self.head(gnn.global_mean_pool(h, batch, batch_size))


class OwnLoss(nn.Module):
    """Also returns a loss that no job offers."""

    def __init__(self):
        super().__init__()
        self.atoms, self.conv, self.head = nn.Embedding(28, WIDTH), gnn.GraphConv(WIDTH, WIDTH), nn.Linear(WIDTH, 1)

    def forward(self, x, edge_index, batch, batch_size: int, y):
        h = self.conv(self.atoms(x.view(-1)), edge_index).tanh()
        out = self.head(gnn.global_add_pool(h, batch, batch_size)).view(-1)
        return out, nn.functional.huber_loss(out, y, delta=0.5) + 0.01 * self.head.weight.square().sum()


class Plain(nn.Module):
    """Takes no edge features. columns: the width of its prediction. rows: whether it predicts for "graphs" or for "nodes"."""

    def __init__(self, columns=1, rows="graphs"):
        super().__init__()
        self.atoms, self.head, self.rows = nn.Embedding(28, WIDTH), nn.Linear(WIDTH, columns), rows

    def forward(self, x, edge_index, batch, batch_size: int):
        h = self.atoms(x.view(-1))
        h = h + h.new_zeros(h.shape).index_add(0, edge_index[1], h[edge_index[0]])
        return self.head(h if self.rows == "nodes" else gnn.global_mean_pool(h, batch, batch_size))


def import_zinc(client, name):
    client.datasets.import_pyg(zinc.molecules(), name, splits=zinc.PARTS, progress=False)


@pytest.fixture(scope="module")
def zinc_set(client):
    """Imports the dataset "zinc-jobs"."""
    import_zinc(client, "zinc-jobs")
    return "zinc-jobs"


RESUMED = {
    "dropout": lambda: Dropping(lambda h: gnn.GINEConv(module_nets.mlp(h, h)), True, WIDTH, 2),
    "batch-norm": lambda: module_nets.make("gin", WIDTH, 2),
    "noise": lambda: Noisy(lambda h: gnn.GINEConv(module_nets.mlp(h, h)), True, WIDTH, 2),
    "gcn": lambda: module_nets.make("gcn", WIDTH, 2),
    "transformer": lambda: module_nets.make("transformer", WIDTH, 2),
    "deeper-gcn": lambda: module_nets.make("deeper-gcn", WIDTH, 2),
}


def test_a_killed_daemon_goes_on_to_the_same_bits(make_server, tmp_path):
    server = make_server()
    client = server.connect()
    import_zinc(client, "zinc")

    def submit(name, module):
        return client.jobs.submit("zinc", module, id=name, epochs=60, batch_size=8, learning_rate=0.003, loss="mse", seed=5, every_steps=7)

    def weights(job):
        return load_file(job.export(tmp_path / "weights", "last_weights"))

    for name, make in RESUMED.items():
        torch.manual_seed(4)
        module = make()
        wanted = weights(submit(f"{name}-undisturbed", module).wait())
        job = submit(f"{name}-killed", module)
        next(state for state in job.states() if state.proto.progress.step > 20)
        server.kill()
        server.start()
        made = weights(job.wait())
        assert job.proto.resumes == 1, name
        assert made.keys() == wanted.keys()
        assert all(torch.equal(made[key], wanted[key]) for key in wanted), name
        trained = dict(module.named_parameters())
        assert any(not torch.equal(made[key], trained[key]) for key in trained if key in made)


def test_deleting_a_program_harms_no_job_of_it(make_server):
    server = make_server()
    client = server.connect()
    import_zinc(client, "zinc")
    module = module_nets.make("gine", WIDTH, 2)
    ended = client.jobs.submit("zinc", module, epochs=2).wait()
    running = client.jobs.submit("zinc", module, epochs=100_000)
    next(state for state in running.states() if state.proto.progress.step > 0)
    queued = client.jobs.submit("zinc", module, epochs=2)
    assert queued.refresh().state == "queued"
    name = ended.proto.spec.model.program
    before = ended.evaluate()
    client.programs.delete(name)
    with pytest.raises(permafrost.NotFound):
        client.programs.get(name)
    # Imports another program under the same name.
    path = permafrost.export(Plain(), zinc.molecules()[0], server.state_dir.parent / "plain.pt2")
    client.programs.import_file(name, path, progress=False)

    assert ended.evaluate() == before
    step = running.refresh().proto.progress.step
    next(state for state in running.states() if state.proto.progress.step > step)
    server.kill()
    server.start()
    next(state for state in running.states() if state.state == "running" and state.proto.progress.step > step)
    running.cancel().wait(check=False)
    assert queued.wait().result["best_epoch"] > 0
    ended.load_into(module)
    assert client.jobs.submit("zinc", program=name, epochs=1).wait().state == "succeeded"


class Positions(nn.Module):
    """Takes a position for each node."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 1)

    def forward(self, pos, batch, batch_size: int):
        return self.head(gnn.global_mean_pool(pos, batch, batch_size))


class Distances(nn.Module):
    """SchNet's interaction, by the lengths of edges."""

    def __init__(self):
        super().__init__()
        self.atoms, self.head = nn.Embedding(28, WIDTH), nn.Linear(WIDTH, 1)
        self.distances, self.interaction = GaussianSmearing(0.0, 4.0, 6), InteractionBlock(WIDTH, 6, WIDTH, 10.0)

    def forward(self, x, pos, edge_index, batch, batch_size: int):
        h, length = self.atoms(x.view(-1)), (pos[edge_index[0]] - pos[edge_index[1]]).norm(dim=-1)
        h = h + self.interaction(h, edge_index, length, self.distances(length))
        return self.head(gnn.global_add_pool(h, batch, batch_size))


class Points(nn.Module):
    """PointNet++'s layer on the dataset's edges."""

    def __init__(self):
        super().__init__()
        self.atoms, self.head = nn.Embedding(28, WIDTH), nn.Linear(WIDTH, 1)
        self.conv = gnn.PointNetConv(module_nets.mlp(WIDTH + 3, WIDTH), add_self_loops=False)

    def forward(self, x, pos, edge_index, batch, batch_size: int):
        return self.head(gnn.global_mean_pool(self.conv(self.atoms(x.view(-1)), pos, edge_index).tanh(), batch, batch_size))


def placed(columns=3):
    """Returns molecules with a position for each atom."""
    draw = torch.Generator().manual_seed(8)
    graphs = [graph.clone() for graph in zinc.molecules()]
    for graph in graphs:
        graph.pos = 2 * torch.randn(graph.num_nodes, columns, generator=draw)
    return graphs


@pytest.fixture(scope="module")
def placed_set(client):
    """Imports the dataset "zinc-placed"."""
    assert client.datasets.import_pyg(placed(), "zinc-placed", splits=zinc.PARTS, progress=False).summary["position columns"] == 3
    return "zinc-placed"


@pytest.mark.parametrize("make", [Distances, Points])
def test_positions_are_read_as_pytorch_reads_them(client, placed_set, zinc_set, make):
    torch.manual_seed(4)
    module, graphs, steps = make(), placed(), 20
    job = client.jobs.submit(placed_set, module, epochs=steps, batch_size=len(zinc.PARTS["train"]), loss="mse", optimizer="adam",
                             learning_rate=0.005, seed=5).wait()
    train = client.cache(job).stats()["train"]
    assert (train["entries"], train["captures"], train["eager_steps"]) == (1, 1, 0)

    def predict(batch):
        return module(batch.x, batch.pos, batch.edge_index, batch.batch, batch.num_graphs).flatten()

    optimizer = torch.optim.Adam(module.parameters(), lr=0.005)
    losses = [told["train_loss"] for told in job.epochs()]
    for epoch, told in enumerate(losses):
        batch = zinc.batch_of(zinc.order([graphs[i] for i in zinc.PARTS["train"]], 5, epoch))
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(predict(batch), batch.y.flatten())
        loss.backward()
        optimizer.step()
        assert abs(told - loss.item()) < 1e-4 * loss.item(), epoch
    assert losses[-1] < 0.95 * losses[0]
    # Predicts the test split, and all of the set as another dataset, here and on the server.
    job.load_into(module.eval())
    with torch.no_grad():
        wanted = predict(zinc.batch_of(graphs))
    predicted, again = job.predict(), job.predictions(placed_set, rows="all")
    for i in range(len(graphs)):
        assert abs(again[str(i)][0] - wanted[i]) < 1e-4 * wanted.abs().max()
        assert i not in zinc.PARTS["test"] or abs(predicted[str(i)][0] - wanted[i]) < 1e-4 * wanted.abs().max()
    with pytest.raises(permafrost.InvalidArgument, match="the dataset has no such features"):
        job.predictions(zinc_set)


def test_a_module_without_positions_evaluates_a_set_with_them(client, placed_set, zinc_set):
    job = client.jobs.submit(zinc_set, Plain(), epochs=2).wait()
    assert job.predictions(placed_set, rows="all") == job.predictions(zinc_set, rows="all")


def test_our_own_models_read_no_positions(client, placed_set, zinc_set):
    losses = [client.jobs.submit(dataset, "gine", epochs=2, hidden_channels=8, seed=5).wait().epochs()[-1]["train_loss"]
              for dataset in (placed_set, zinc_set)]
    assert losses[0] == losses[1]


def test_positions_in_folds_and_beside_made_features(client, placed_set):
    class Scaled(Positions):
        def forward(self, x, pos, batch, batch_size: int):
            return self.head(gnn.global_mean_pool(pos * x, batch, batch_size))

    graphs = placed()
    for graph in graphs:
        graph.x = torch.ones(graph.num_nodes, 1)
    module = Scaled()
    job = client.jobs.submit(placed_set, module, example=graphs[0], epochs=2, loss="mse", node_inputs="constant",
                             cross_validation={"folds": 4, "fold": 1}).wait()
    job.load_into(module)
    batch = zinc.batch_of(graphs)
    with torch.no_grad():
        wanted = module(batch.x, batch.pos, batch.batch, batch.num_graphs)
    predicted = job.predict()
    assert len(predicted) == 15
    assert all(abs(value[0] - wanted[int(i)].item()) < 1e-5 for i, value in predicted.items())


def as_program(client, name, module, example, folder):
    return client.programs.import_file(name, permafrost.export(module, example, folder / f"{name}.pt2"), progress=False)


def refused(client, *submitted, **spec):
    """Returns the server's refusals by field."""
    with pytest.raises(permafrost.InvalidArgument) as caught:
        client.jobs.submit(*submitted, **spec)
    assert "\n" not in str(caught.value)
    return {violation.field: violation.description for violation in caught.value.violations}


def test_a_program_that_does_not_fit_is_refused(client, zinc_set, tmp_path):
    graph = zinc.molecules()[0]
    graph.pos, graph.floats = torch.rand(graph.num_nodes, 3), graph.x.float().repeat(1, 2)
    as_program(client, "positions", Positions(), graph, tmp_path)
    told = refused(client, zinc_set, program="positions")
    assert 'input "pos": the dataset has no such features' in told["spec.model.program"]
    client.datasets.import_pyg(placed(2), "zinc-flat", splits=zinc.PARTS, progress=False)
    told = refused(client, "zinc-flat", program="positions")
    assert "with 3 columns; the dataset has 2 columns of float32" in told["spec.model.program"]

    as_program(client, "three-columns", Plain(3), graph, tmp_path)
    told = refused(client, zinc_set, program="three-columns", loss="mse")["spec.model.program"]
    assert ", 3]" in told and ", 1]" in told
    as_program(client, "of-nodes", Plain(rows="nodes"), {"x": graph.x, "edge_index": graph.edge_index, "batch": torch.zeros(len(graph.x)).long()}, tmp_path)
    assert "a row for each graph" in refused(client, zinc_set, program="of-nodes", loss="mse")["spec.model.program"]


def test_a_field_of_our_own_models_is_refused(client, zinc_set, tmp_path):
    program = as_program(client, "plain", Plain(), zinc.molecules()[0], tmp_path)
    assert "spec.model.hidden_channels" in refused(client, zinc_set, program, hidden_channels=8)
    assert any("model" in field for field in refused(client, zinc_set, {"architecture": "gine", "program": "plain"}))
    with pytest.raises(permafrost.NotFound) as caught:
        client.jobs.submit(zinc_set, program="unknown")
    assert caught.value.reason == "PROGRAM_NOT_FOUND"
    assert "programs/unknown" in str(caught.value)


class Linked(nn.Module):
    """Removes self-loops, as GCNConv does."""

    def __init__(self):
        super().__init__()
        self.atoms, self.conv, self.head = nn.Embedding(28, WIDTH), gnn.GCNConv(WIDTH, WIDTH), nn.Linear(WIDTH, 1)

    def forward(self, x, edge_index, batch, batch_size: int):
        return self.head(gnn.global_mean_pool(self.conv(self.atoms(x.view(-1)), edge_index).relu(), batch, batch_size))


def test_weights_are_taken_over_and_fixed(client, zinc_set):
    module = Plain()
    first = client.jobs.submit(zinc_set, module, epochs=2).wait()
    fixed = client.jobs.submit(zinc_set, Plain(), epochs=2, init_from={"job": f"jobs/{first.id}"}, fixed_parameters=["atoms"]).wait()
    trained, continued = first.load_into(Plain()), fixed.load_into(Plain())
    assert torch.equal(trained.atoms.weight, continued.atoms.weight)
    assert not torch.equal(trained.head.weight, continued.head.weight)
    # It also works without fixed parameters.
    assert client.jobs.submit(zinc_set, Plain(), epochs=1, init_from={"job": f"jobs/{first.id}"}).wait().state == "succeeded"


def test_another_dataset_may_have_numbers_that_training_did_not_see(client, zinc_set):
    low = [graph.clone() for graph in zinc.molecules()]
    for graph in low:
        graph.x = graph.x.clamp(max=2)
    client.datasets.import_pyg(low, "zinc-low", splits=zinc.PARTS, progress=False)
    job = client.jobs.submit("zinc-low", Plain(), epochs=2).wait()
    module = job.load_into(Plain()).eval()
    graph = zinc.molecules()[0]
    assert graph.x.max() > 2
    predicted = job.predictions(zinc_set)["0"][0]
    with torch.no_grad():
        own = module(graph.x, graph.edge_index, torch.zeros(len(graph.x)).long(), 1).item()
    assert abs(predicted - own) < 1e-4 * abs(own)


def test_another_dataset_may_have_numbers_of_edges_that_training_did_not_see(client, tmp_path):
    low = [graph.clone() for graph in zinc.molecules()]
    for graph in low:
        graph.edge_attr = graph.edge_attr.clamp(max=2)
    client.datasets.import_pyg(low, "zinc-single", splits=zinc.PARTS, progress=False)
    if "zinc-jobs" not in [dataset.id for dataset in client.datasets]:
        import_zinc(client, "zinc-jobs")
    torch.manual_seed(4)
    module = module_nets.make("gine", WIDTH, 2)
    job = client.jobs.submit("zinc-single", module, epochs=2).wait()
    job.load_into(module.eval())
    graph = next(graph for graph in zinc.molecules() if graph.edge_attr.max() > 2)
    number = next(i for i, other in enumerate(zinc.molecules()) if other.edge_attr.max() > 2)
    with torch.no_grad():
        own = zinc.predict(module, zinc.batch_of([graph])).item()
    assert abs(job.predictions("zinc-jobs")[str(number)][0] - own) < 1e-4 * abs(own)


class Partly(nn.Module):
    """A module whose loss does not reach the layer that predicts, as in self-supervised learning."""

    def __init__(self):
        super().__init__()
        self.atoms, self.head, self.proj = nn.Embedding(28, WIDTH), nn.Linear(WIDTH, 1), nn.Linear(WIDTH, 1)

    def forward(self, x, batch, batch_size: int, y):
        h = gnn.global_mean_pool(self.atoms(x.view(-1)), batch, batch_size)
        return self.head(h.detach()), nn.functional.mse_loss(self.proj(h), y)


def test_parameters_that_the_loss_does_not_reach_stay(client, zinc_set):
    torch.manual_seed(4)
    module = Partly()
    job = client.jobs.submit(zinc_set, module, epochs=3, learning_rate=0.01).wait()
    trained = job.load_into(Partly())
    assert torch.equal(trained.head.weight, module.head.weight)
    assert not torch.equal(trained.proj.weight, module.proj.weight)
    assert not torch.equal(trained.atoms.weight, module.atoms.weight)


def test_self_loops_are_told_at_submit_and_train_eagerly(client):
    looped = [graph.clone() for graph in zinc.molecules()]
    for graph in looped:
        graph.edge_index = torch.cat([graph.edge_index, torch.tensor([[0], [0]])], dim=1)
        graph.edge_attr = torch.cat([graph.edge_attr, graph.edge_attr[:1]])
    client.datasets.import_pyg(looped, "zinc-loops", splits=zinc.PARTS, progress=False)
    with pytest.warns(UserWarning, match="the program removes self-loops"):
        job = client.jobs.submit("zinc-loops", Linked(), epochs=2)
    assert any("the program removes self-loops" in note for note in job.notes)
    assert job.wait().state == "succeeded"
    assert client.cache(job).stats()["train"]["captures"] == 0
    told = refused(client, "zinc-loops", Linked(), graph_cache={"policy": "freeze", "strict": True})
    assert "true, and the program removes self-loops" in told["spec.graph_cache.strict"]


def test_no_ladder_is_planned(client, server, zinc_set, tmp_path):
    as_program(client, "planned", Plain(), zinc.molecules()[0], tmp_path)
    told = subprocess.run([server.program.parent / "permafrost", "--server", server.target, "--output", "json", "cache", "plan", "--dataset",
                           zinc_set, "--program", "planned", "--epochs", "2"], check=True, stdout=subprocess.PIPE, text=True).stdout
    assert "SHAPES_DYNAMIC" in told
    assert "LADDER" not in told


def test_numbers_that_a_module_draws_are_captured_with_its_step(client, zinc_set):
    torch.manual_seed(4)
    module = RESUMED["noise"]()
    job = client.jobs.submit(zinc_set, module, epochs=30, batch_size=8, learning_rate=0.01, loss="mse", seed=5).wait()
    train = client.cache(job).stats()["train"]
    assert (train["entries"], train["captures"], train["eager_steps"]) == (1, 1, 0)
    losses = [epoch["train_loss"] for epoch in job.epochs()]
    assert losses[-1] < 0.9 * losses[0]
    # Another seed gives other noise. With one batch of all graphs, their order affects only rounding.
    def losses_by_seed(module):
        return torch.tensor([client.jobs.submit(zinc_set, module, epochs=1, batch_size=40, loss="mse", seed=seed).wait().epochs()[0]["train_loss"]
                             for seed in (5, 6)])

    noisy, plain = losses_by_seed(module), losses_by_seed(Plain())
    assert (noisy[0] - noisy[1]).abs() > 1e-3 * noisy[0]
    assert (plain[0] - plain[1]).abs() < 1e-5 * plain[0]


def test_a_loss_of_the_module_is_trained_and_reported(client, zinc_set):
    torch.manual_seed(4)
    module = OwnLoss()
    steps = 20
    job = client.jobs.submit(zinc_set, module, epochs=steps, batch_size=len(zinc.PARTS["train"]), optimizer="sgd", learning_rate=0.01, seed=5).wait()
    graphs = [zinc.molecules()[i] for i in zinc.PARTS["train"]]
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    for epoch, told in enumerate(job.epochs()):
        batch = zinc.batch_of(zinc.order(graphs, 5, epoch))
        optimizer.zero_grad()
        loss = module(batch.x, batch.edge_index, batch.batch, batch.num_graphs, batch.y.view(-1))[1]
        loss.backward()
        optimizer.step()
        assert abs(told["train_loss"] - loss.item()) < 1e-4 * loss.item(), epoch
    # The metric is that of the predictions.
    predicted = torch.tensor([job.predict()[str(i)][0] for i in zinc.PARTS["test"]])
    y = torch.cat([zinc.molecules()[i].y.view(-1) for i in zinc.PARTS["test"]])
    assert abs(job.result["best_test_metrics"]["mae"] - (predicted - y).abs().mean().item()) < 1e-4


def test_labels_of_classes_are_whole_numbers(client, tmp_path):
    """A missing label is -100, which cross-entropy ignores."""

    class Classes(nn.Module):
        def __init__(self):
            super().__init__()
            self.atoms, self.head = nn.Embedding(28, WIDTH), nn.Linear(WIDTH, 2)

        def forward(self, x, batch, batch_size: int, y):
            out = self.head(gnn.global_mean_pool(self.atoms(x.view(-1)), batch, batch_size))
            return out, nn.functional.cross_entropy(out, y, label_smoothing=0.1)

    graphs = [graph.clone() for graph in zinc.molecules()]
    for i, graph in enumerate(graphs):
        graph.y = torch.tensor([float(i % 2)]) if i % 5 else torch.tensor([float("nan")])
    client.datasets.import_pyg(graphs, "two-classes", splits=zinc.PARTS, progress=False)
    torch.manual_seed(4)
    module = Classes()
    job = client.jobs.submit("two-classes", module, loss="cross_entropy", epochs=1, batch_size=40, seed=5).wait()
    batch = zinc.batch_of([graphs[i] for i in zinc.PARTS["train"]])
    y = torch.where(batch.y.isnan(), -100, batch.y).view(-1).long()
    loss = module(batch.x, batch.batch, batch.num_graphs, y)[1].item()
    assert abs(job.epochs()[0]["train_loss"] - loss) < 1e-5 * loss
