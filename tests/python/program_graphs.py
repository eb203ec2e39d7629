"""Node-level modules and a graph for them, which the tests of programs on one large graph share."""

import torch
import torch_geometric.nn as gnn
from torch import nn
from torch_geometric.data import Data

NODES, COLUMNS, CLASSES, WIDTH = 240, 12, 4, 8
STEPS, LEARNING_RATE, SEED = 50, 0.1, 6
# Our sums round differently from PyTorch's. These tests use SGD. Adam would take a full step if a gradient is 0 up to rounding, as for
# attention to a single neighbour.
TOLERANCE = 1e-4
# The learning rate for whole curves. At LEARNING_RATE, GIN's losses jump, and rounding grows until an input of a ReLU changes its sign.
GENTLE_RATE = 0.05


class Net(nn.Module):
    """Two layers of a convolution. reads: "edge_weight", "edge_attr", or "" if it reads nothing of edges."""

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
    """Predicts only for the seeds of a batch, as is usual with PyG's NeighborLoader."""

    def forward(self, x, edge_index, batch_size: int):
        return self.run(x, edge_index, ())[:batch_size]


class Placed(Net):
    """Reads the positions of nodes: first by PointNet's messages, then by messages that fade with the distance, as SchNet's do."""

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
    """Returns a graph of communities. Its edges are in both directions, and ordered by target, as on the server. across: the part of the
    edges between communities that is kept."""
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


def call(module, data):
    if isinstance(module, FromData):
        return module(data)
    if isinstance(module, OfSeeds):
        return module(data.x, data.edge_index, data.num_nodes)
    if isinstance(module, Placed):
        return module(data.x, data.pos, data.edge_index)
    of_edges = {Weighted: (data.edge_weight,), Featured: (data.edge_attr,)}.get(type(module), ())
    return module(data.x, data.edge_index, *of_edges)


def train(module, data, learning_rate=LEARNING_RATE):
    """Trains on the whole graph, and returns the losses of the steps."""
    optimizer = torch.optim.SGD(module.parameters(), lr=learning_rate)
    module.train()
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(call(module, data)[data.train_mask], data.y[data.train_mask])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses)


def submit(client, module, dataset="communities", learning_rate=LEARNING_RATE, **spec):
    return client.jobs.submit(dataset, module, loss="cross_entropy", optimizer="sgd", learning_rate=learning_rate, seed=SEED, **spec)


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
