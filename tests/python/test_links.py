"""Compares jobs on links that a dataset divides with a plain computation of the same figures."""

import pathlib

import numpy as np
import permafrost
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.transforms import RandomLinkSplit

from tests.python.data import citations

TRIALS = pathlib.Path(__file__).resolve().parent.parent / "trials"
METRICS = ["mrr", "hits_at_10", "hits_at_20", "hits_at_50", "roc_auc", "average_precision"]


def links_of(data, generator):
    """Returns each edge once, in random order, in thirds."""
    source, target = data.edge_index
    links = torch.unique(data.edge_index.T[source < target], dim=0)
    links = links[torch.randperm(len(links), generator=generator)]
    third = len(links) // 3
    return {"train": links[2 * third:], "valid": links[:third], "test": links[third:2 * third]}


def without_edge(data, sources, count, generator):
    """Returns [sources, count] targets to which their source has no edge."""
    edge = torch.eye(data.num_nodes, dtype=torch.bool)
    edge[data.edge_index[0], data.edge_index[1]] = True
    return torch.multinomial((~edge[sources]).float(), count, generator=generator)


def metrics_of(links, negatives, shared):
    """Computes metrics as OGB's evaluators do. links: [L]. negatives: [M] that all links share, or [L, K]."""
    own, all_negatives = links.double().numpy(), negatives.double().numpy()
    against = np.broadcast_to(all_negatives, (len(own), all_negatives.size)) if shared else all_negatives
    above = (against > own[:, None]).sum(1)
    not_below = (against >= own[:, None]).sum(1)
    ranks = 0.5 * (above + not_below) + 1
    told = {"mrr": (1 / ranks).mean()}
    flat = np.sort(all_negatives.reshape(-1))
    for k in (10, 20, 50):
        told[f"hits_at_{k}"] = 1.0 if flat.size < k else (own > flat[-k]).mean()
    below, up_to = np.searchsorted(flat, own, "left"), np.searchsorted(flat, own, "right")
    told["roc_auc"] = ((below + up_to) / 2).mean() / flat.size
    assert not np.isin(own, flat).any() and len(np.unique(own)) == len(own), "equal scores would need rules of their own"
    every = np.sort(np.concatenate([own, flat]))
    places = len(every) - np.searchsorted(every, np.sort(own)[::-1], "left")
    told["average_precision"] = (np.arange(1, len(own) + 1) / places).mean()
    return told, ranks


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("fields", [{}, {"fan_outs": [5, 5]}])
def test_a_datasets_split_and_negatives(client, shared, fields):
    data, generator = citations(), torch.Generator().manual_seed(3)
    links = links_of(data, generator)
    split = {"train": {"edge": links["train"]}}
    for name in ("valid", "test"):
        if shared:
            sources = torch.randint(data.num_nodes, (70,), generator=generator)
            negatives = torch.stack([sources, without_edge(data, sources, 1, generator)[:, 0]], dim=1)
            split[name] = {"edge": links[name], "edge_neg": negatives}
        else:
            split[name] = {"source_node": links[name][:, 0], "target_node": links[name][:, 1],
                           "target_node_neg": without_edge(data, links[name][:, 0], 9, generator)}
    name = f"divided-{'shared' if shared else 'each'}-{len(fields)}"
    dataset = client.datasets.import_pyg(data, name, link_split=split, progress=False)
    told = dataset.proto.graph.links
    assert (told.num_train, told.num_valid, told.num_test) == tuple(len(links[part]) for part in ("train", "valid", "test"))
    assert (told.test_negative_pairs, told.test_negatives) == ((70, 0) if shared else (0, 9))

    job = client.jobs.submit(name, "sage", epochs=4, hidden_channels=8, decoder="mlp", metrics=METRICS, negatives=1, batch_size=64,
                             **fields).wait()
    assert job.proto.spec.link_prediction.split == 1  # DATASET
    held_out = {pair for part in ("valid", "test") for a, b in links[part].tolist() for pair in ((a, b), (b, a))}
    kept = [tuple(edge) not in held_out for edge in data.edge_index.T.tolist()]
    messages = Data(x=data.x, edge_index=data.edge_index[:, torch.tensor(kept)])
    for part in ("valid", "test"):
        if shared:
            pairs = split[part]["edge_neg"]
        else:
            pairs = torch.stack([links[part][:, :1].expand(-1, 9), split[part]["target_node_neg"]], dim=2).reshape(-1, 2)
        of_links, of_negatives = job.predict(messages, links[part].T), job.predict(messages, pairs.T)
        wanted, ranks = metrics_of(of_links, of_negatives if shared else of_negatives.reshape(-1, 9), shared)
        found = job.evaluate(rows=part)
        for metric, value in wanted.items():
            assert abs(found[metric] - value) < 2e-3, (part, metric, found[metric], value)
        assert abs(found["mrr"] - wanted["mrr"]) < 1e-5
        labels = torch.cat([torch.ones(len(of_links)), torch.zeros(min(len(of_negatives), len(of_links)))])
        first = of_negatives[:len(of_links)] if shared else of_negatives.reshape(-1, 9)[:, 0]
        loss = torch.nn.functional.binary_cross_entropy_with_logits(torch.cat([of_links, first]), labels)
        assert abs(found["loss"] - loss.item()) < 1e-5
        stored = job.predictions(rows=part)
        assert [(int(link.source), int(link.target)) for link in stored] == [tuple(link) for link in links[part].tolist()]
        assert np.allclose([link.rank for link in stored], ranks)
        assert {link.time for link in stored} == {None}


def test_every_link_in_time_is_a_row(client, tmp_path):
    """Two nodes have several links, which a dict of pairs would merge."""
    client.datasets.upload_path(TRIALS / "temporal" / "t.csv", "in-time", no_inverse_edges=True, progress=False)
    job = client.jobs.submit("in-time", "sage", epochs=1, hidden_channels=8, fan_outs=[2, 2], temporal="last", eval_negatives=3, test_part=0.2,
                             node_inputs="learned", link_prediction={}).wait()
    stored = job.predict()
    assert sorted(link.time for link in stored) == list(range(48, 60))
    assert all((link.source, link.target) == (str(link.time % 4), str(4 + link.time % 2)) for link in stored)
    assert job.predictions() == stored
    lines = job.export(tmp_path / "test.csv", "test_predictions").read_text().splitlines()
    assert lines[0] == "source,target,time,score,rank"
    assert len(lines) == 13


def test_links_of_hubs_are_not_ranked(client, recwarn):
    for name in ("k4", "star"):
        client.datasets.upload_path(TRIALS / "links-full" / name, f"full-{name}", progress=False)
    with pytest.raises(permafrost.InvalidArgument, match="none of the . links to .* can be ranked: each begins at a node that has an edge to every"):
        client.jobs.submit("full-k4", "sage", epochs=1, hidden_channels=8, valid_part=0.3, test_part=0.3)
    job = client.jobs.submit("full-star", "sage", epochs=2, hidden_channels=8, valid_part=0.3, test_part=0.4, eval_negatives=5).wait()
    told = [note for note in job.notes if "they have no negatives and are not ranked" in note]
    assert told, job.notes
    assert all(any(note in str(warning.message) for warning in recwarn) for note in told)
    assert all(note in job.logs() for note in told)
    stored = job.predictions()
    unranked = [link for link in stored if link.rank is None]
    assert {link.source for link in unranked} == {"0"}
    assert job.result["unranked_test_links"] == len(unranked) == job.evaluate()["unranked_links"]
    assert 0 < job.result["best_test_metric"] <= 1
    ranks = [link.rank for link in stored if link.rank is not None]
    assert abs(job.result["best_test_metric"] - sum(1 / rank for rank in ranks) / len(ranks)) < 1e-6


def test_random_link_split(client):
    data = citations()
    parts = RandomLinkSplit(num_val=0.1, num_test=0.2, is_undirected=True, add_negative_train_samples=False)(data)
    dataset = client.datasets.import_pyg(parts[0], "random-split", link_split=parts, progress=False)
    given = dataset.proto.graph.links
    positive = [int((part.edge_label > 0).sum()) for part in parts]
    assert [given.num_train, given.num_valid, given.num_test] == positive
    assert (given.valid_negative_pairs, given.test_negative_pairs) == tuple(int((part.edge_label == 0).sum()) for part in parts[1:])
    assert dataset.summary["links"] == sum(positive)
    job = client.jobs.submit("random-split", "gcn", epochs=2, hidden_channels=8, metrics=["roc_auc"], decoder="dot").wait()
    assert 0 <= job.result["best_test_metric"] <= 1
    drawn = client.jobs.submit("random-split", "gcn", epochs=1, hidden_channels=8, link_prediction={"split": "drawn", "test_part": 0.2}).wait()
    assert drawn.proto.spec.link_prediction.test_part == 0.2


def test_what_contradicts_the_datasets_split_is_refused(client):
    data = citations()
    links = links_of(data, torch.Generator().manual_seed(3))
    client.datasets.import_pyg(data, "contradicted", link_split={name: {"edge": part} for name, part in links.items()}, progress=False)
    client.datasets.import_pyg(data, "undivided", progress=False)
    with pytest.raises(permafrost.InvalidArgument, match="test_part: is given, and the dataset divides the links; accepted: with split drawn"):
        client.jobs.submit("contradicted", "gcn", test_part=0.2)
    with pytest.raises(permafrost.InvalidArgument, match="split: dataset, and the dataset divides no links; accepted: drawn"):
        client.jobs.submit("undivided", "gcn", link_prediction={"split": "dataset"})


@pytest.mark.parametrize(("split", "told"), [
    ({"train": {}}, "has 'train'; accepted: train, valid and test, all of them"),
    (3, "link_split: is a int; accepted: a dict of train, valid and test"),
    ({name: {"edge": torch.zeros(1, 3, dtype=torch.long)} for name in ("train", "valid", "test")}, r"train: shape \[1, 3\], expected"),
    ({name: {"edge": torch.tensor([[0, 10**6]])} for name in ("train", "valid", "test")}, "train: 1000000 is outside 0.."),
    ({name: {"edge": torch.rand(1, 2)} for name in ("train", "valid", "test")}, "train: float32 of shape"),
    ({name: {"head": [0], "relation": [0], "tail": [1]} for name in ("train", "valid", "test")}, "relations of links are not supported"),
    ({name: {"source_node": torch.tensor([0]), "target_node": torch.tensor([1]), "target_node_neg": torch.tensor([[2, 3]])}
      for name in ("train", "valid", "test")}, r"target_node_neg: shape \[1, 2\], expected \[1, K\] with K other than 2"),
])
def test_splits_that_cannot_be_read(client, split, told):
    with pytest.raises(permafrost.InputError, match=told):
        client.datasets.import_pyg(citations(), "unreadable", link_split=split, progress=False)
