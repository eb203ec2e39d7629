"""The modules that tests/program exports: PyG's convolutions in a small network, and modules as users write them."""

from collections.abc import Callable
from typing import Any

import torch
import torch_geometric.nn as gnn
from torch import Tensor, nn
from torch.export import Dim
from torch_geometric.nn.models.schnet import GaussianSmearing, InteractionBlock, ShiftedSoftplus

Batch = dict[str, Any]
WIDTH = 16


def batch(nodes: int, edges: int, graphs: int, seed: int) -> Batch:
    draw = torch.Generator().manual_seed(seed)
    of_node = torch.cat([torch.arange(graphs), torch.randint(0, graphs, (nodes - graphs,), generator=draw)]).sort()[0]
    return {
        "x": torch.randint(0, 28, (nodes,), generator=draw),
        "pos": torch.randn(nodes, 3, generator=draw),
        "edge_index": torch.randint(0, nodes, (2, edges), generator=draw),
        "edge_attr": torch.randint(0, 4, (edges,), generator=draw),
        "edge_weight": torch.rand(edges, generator=draw),
        "batch": of_node,
        "num_graphs": graphs,
    }


def specification(example: Batch) -> dict[str, Any]:
    nodes, edges = Dim("N", min=2), Dim("E", min=2)
    sizes = {"x": {0: nodes}, "pos": {0: nodes}, "edge_index": {1: edges}, "edge_attr": {0: edges}}
    sizes |= {"edge_weight": {0: edges}, "batch": {0: nodes}, "num_graphs": Dim.DYNAMIC}
    return {name: sizes[name] for name in example}


def mlp(inside: int, outside: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inside, outside), nn.ReLU(), nn.Linear(outside, outside))


class Net(nn.Module):
    """Layers of one convolution with batch norm, summed over each graph."""

    def __init__(self, conv: Callable[[int], nn.Module], edges: bool = True, layers: int = 2) -> None:
        super().__init__()
        self.nodes, self.bonds, self.edges = nn.Embedding(28, WIDTH), nn.Embedding(4, WIDTH), edges
        self.convs = nn.ModuleList(conv(WIDTH) for _ in range(layers))
        self.norms = nn.ModuleList(nn.BatchNorm1d(WIDTH) for _ in range(layers))
        self.head = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
        h, e = self.nodes(x), self.bonds(edge_attr)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            h = norm(conv(h, edge_index, e) if self.edges else conv(h, edge_index)).relu()
        return self.head(gnn.global_add_pool(h, batch, num_graphs)).squeeze(-1)


class Layers(nn.Module):
    """A network whose layers take and return node features and edge features."""

    def __init__(self, layer: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.nodes, self.bonds = nn.Embedding(28, WIDTH), nn.Embedding(4, WIDTH)
        self.layers = nn.ModuleList(layer() for _ in range(2))
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
        h, e = self.nodes(x), self.bonds(edge_attr)
        for layer in self.layers:
            h = layer(h, edge_index, e)
        return self.head(gnn.global_mean_pool(h, batch, num_graphs))


def deeper_gcn() -> nn.Module:
    conv = gnn.GENConv(WIDTH, WIDTH, aggr="softmax", t=1.0, learn_t=True, num_layers=2, norm="layer")
    return gnn.DeepGCNLayer(conv, nn.LayerNorm(WIDTH), nn.ReLU(inplace=True), block="res+", dropout=0.1)


class PointNet(nn.Module):
    """Uses only positions, as in PyG's point cloud tutorial."""

    def __init__(self) -> None:
        super().__init__()
        self.first = gnn.PointNetConv(mlp(6, WIDTH), mlp(WIDTH, WIDTH), add_self_loops=False)
        self.second = gnn.PointNetConv(mlp(WIDTH + 3, WIDTH), mlp(WIDTH, WIDTH), add_self_loops=False)
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, pos: Tensor, edge_index: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
        h = self.first(pos, pos, edge_index).relu()
        h = self.second(h, pos, edge_index).relu()
        return self.head(gnn.global_max_pool(h, batch, num_graphs)).log_softmax(-1)


class SchNet(nn.Module):
    """SchNet's interactions over given edges."""

    def __init__(self) -> None:
        super().__init__()
        self.atoms, self.smear, self.act = nn.Embedding(28, WIDTH), GaussianSmearing(0.0, 5.0, 8), ShiftedSoftplus()
        self.blocks = nn.ModuleList(InteractionBlock(WIDTH, 8, WIDTH, 5.0) for _ in range(2))
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor, pos: Tensor, edge_index: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
        distance = (pos[edge_index[0]] - pos[edge_index[1]]).norm(dim=-1)
        h, smeared = self.atoms(x), self.smear(distance)
        for block in self.blocks:
            h = h + block(h, edge_index, distance, smeared)
        return self.head(gnn.global_add_pool(self.act(h), batch, num_graphs)).squeeze(-1)


class Own(gnn.MessagePassing):
    """A convolution as a user might write it."""

    def __init__(self) -> None:
        super().__init__(aggr="mean")
        self.message_of, self.root, self.gate = mlp(3 * WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.GRUCell(WIDTH, WIDTH)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        return self.gate(self.propagate(edge_index, x=x, edge_attr=edge_attr), self.root(x))

    def message(self, x_i: Tensor, x_j: Tensor, edge_attr: Tensor) -> Tensor:
        return self.message_of(torch.cat([x_i, x_j, edge_attr], dim=-1)).tanh()


class Attending(nn.Module):
    """Combines message passing with attention over each graph, as in GraphGPS, with a bound on the nodes of a graph."""

    LONGEST = 32

    def __init__(self) -> None:
        super().__init__()
        self.local, self.norm = gnn.GINEConv(mlp(WIDTH, WIDTH)), nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.mix = mlp(WIDTH, WIDTH)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
        count = torch.zeros(num_graphs, dtype=torch.long).index_add(0, batch, torch.ones_like(batch))
        place = torch.arange(x.size(0)) - (count.cumsum(0) - count)[batch] + batch * self.LONGEST
        dense = (
            x.new_zeros(num_graphs * self.LONGEST, WIDTH).index_copy(0, place, x).view(num_graphs, self.LONGEST, WIDTH)
        )
        padding = torch.arange(self.LONGEST) >= count[:, None]
        attended, _ = self.attention(dense, dense, dense, key_padding_mask=padding, need_weights=False)
        h = self.norm(self.local(x, edge_index, edge_attr) + attended.reshape(-1, WIDTH)[place] + x)
        return h + self.mix(h)


class GPS(nn.Module):
    """A network of Attending layers."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes, self.bonds = nn.Embedding(28, WIDTH), nn.Embedding(4, WIDTH)
        self.layers, self.head = nn.ModuleList(Attending() for _ in range(2)), nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
        h, e = self.nodes(x), self.bonds(edge_attr)
        for layer in self.layers:
            h = layer(h, edge_index, e, batch, num_graphs)
        return self.head(gnn.global_add_pool(h, batch, num_graphs)).squeeze(-1)


class Recurrent(nn.Module):
    """Uses a GRU whose state belongs to a node, an LSTM over the layers, and Set2Set, whose LSTM reads a graph's
    nodes repeatedly."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes, self.conv, self.gru = nn.Embedding(28, WIDTH), gnn.GraphConv(WIDTH, WIDTH), nn.GRU(WIDTH, WIDTH)
        self.jump, self.pool = gnn.JumpingKnowledge("lstm", WIDTH, 3), gnn.Set2Set(WIDTH, 2)
        self.head = nn.Linear(2 * WIDTH, 1)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
        layers = [self.nodes(x)]
        for _ in range(2):
            sent = self.conv(layers[-1], edge_index).tanh()
            layers.append(self.gru(sent.unsqueeze(0), layers[-1].unsqueeze(0).contiguous())[0].squeeze(0))
        return self.head(self.pool(self.jump(layers), batch, dim_size=num_graphs)).squeeze(-1)


class Tied(nn.Module):
    """Has tied, frozen and unused parameters, constants, a buffer outside the state_dict, regions, and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.atoms, self.a, self.b = nn.Embedding(28, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.b.weight, self.drop, self.unused = self.a.weight, nn.Dropout(0.3), nn.Linear(2, 2)
        self.frozen = nn.Parameter(torch.linspace(0.5, 1.5, WIDTH), requires_grad=False)
        self.register_buffer("calls", torch.zeros(WIDTH), persistent=False)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        h = self.drop(self.b(self.a(self.atoms(x)))) * self.frozen + self.calls
        with torch.no_grad():
            shift = h.mean(0)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = self.a(h).relu()
        h = h.float() - shift + torch.tensor([1.0, 2.0]).repeat(WIDTH // 2)
        if self.training:
            self.calls.add_(1)
        sent = torch.zeros_like(h).index_add(0, edge_index[1], h[edge_index[0]] * edge_weight[:, None])
        low, high = torch.cat([h, sent], dim=1).chunk(2, 1)
        return torch.where(low > high, low, high * 0.5) / (x.size(0) / 2.0) + (x.size(0) % 3)


def with_edges(name: str, **options: Any) -> Callable[[], nn.Module]:
    heads = (
        {"out_channels": WIDTH // 4, "heads": 4}
        if name in ("GATConv", "GATv2Conv", "TransformerConv")
        else {"out_channels": WIDTH}
    )
    return lambda: Net(lambda h: getattr(gnn, name)(h, edge_dim=h, **heads, **options))


def without_edges(name: str, *arguments: Any, **options: Any) -> Callable[[], nn.Module]:
    return lambda: Net(lambda h: getattr(gnn, name)(h, h, *arguments, **options), edges=False)


PNA = {"aggregators": ["mean", "min", "max", "std"], "scalers": ["identity", "amplification", "attenuation"]}

MODULES: dict[str, Callable[[], nn.Module]] = {
    "gine": lambda: Net(lambda h: gnn.GINEConv(mlp(h, h))),
    "gin": lambda: Net(lambda h: gnn.GINConv(mlp(h, h), train_eps=True), edges=False),
    "gcn": without_edges("GCNConv"),
    "sage": without_edges("SAGEConv"),
    "gat": with_edges("GATConv"),
    "gatv2": with_edges("GATv2Conv"),
    "transformer": with_edges("TransformerConv"),
    "pna": with_edges("PNAConv", deg=torch.tensor([0, 10, 20, 30, 10]), **PNA),
    "resgated": with_edges("ResGatedGraphConv"),
    "gen": with_edges("GENConv"),
    "edgeconv": lambda: Net(lambda h: gnn.EdgeConv(mlp(2 * h, h)), edges=False),
    "tag": without_edges("TAGConv"),
    "cheb": without_edges("ChebConv", 3),
    "graphconv": without_edges("GraphConv"),
    "nnconv": lambda: Net(lambda h: gnn.NNConv(h, h, nn.Linear(h, h * h))),
    "gen_softmax": with_edges("GENConv", aggr="softmax", t=0.5, learn_t=True),
    "deeper_gcn": lambda: Layers(deeper_gcn),
    "own": lambda: Layers(Own),
    "point_net": PointNet,
    "schnet": SchNet,
    "gps": GPS,
    "recurrent": Recurrent,
    "tied": Tied,
    "gated": lambda: Net(lambda h: gnn.GatedGraphConv(h, 2), edges=False),
    "sg": without_edges("SGConv", K=2),
    "arma": without_edges("ARMAConv", num_stacks=2, num_layers=2),
    "mf": without_edges("MFConv"),
    "le": without_edges("LEConv"),
    "film": without_edges("FiLMConv"),
    "general": lambda: Net(lambda h: gnn.GeneralConv(h, h, in_edge_channels=h, attention=True, heads=2)),
    "cg": lambda: Net(lambda h: gnn.CGConv(h, dim=h, batch_norm=True)),
    "appnp": lambda: Net(lambda h: gnn.APPNP(3, 0.1), edges=False),
    "pdn": lambda: Net(lambda h: gnn.PDNConv(h, h, edge_dim=h, hidden_channels=h)),
}
