"""Tests jobs from submission to the trained PyG module."""

import os
import re
import subprocess
import sys

import pytest
import torch
from torch_geometric.data import Data

import permafrost
from tests.python.data import citations, molecules

TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def trained(client):
    """Returns a trained job over a set, its graphs, and their test split."""
    graphs = molecules()
    client.datasets.import_pyg(graphs, "trained", splits={"train": range(40), "valid": range(40, 50), "test": range(50, 60)}, progress=False)
    job = client.jobs.submit("trained", "gine", id="trained", epochs=4, batch_size=8, hidden_channels=16, num_layers=2, loss="mse")
    return job.wait(), graphs, range(50, 60)


def difference(predicted, stored):
    """Returns the largest relative difference between rows of a tensor and stored predictions by row."""
    assert stored
    rows = torch.tensor([values for values in stored.values()])
    made = predicted[[int(row) for row in stored]]
    return ((made - rows).abs() / rows.abs().clamp_min(1)).max().item()


def test_the_module_predicts_what_the_server_predicted(trained):
    job, graphs, test = trained
    stored = job.predict()
    assert list(stored) == [str(i) for i in test]
    assert difference(job.predict(graphs), stored) < TOLERANCE
    assert difference(job.predict([graphs[i] for i in reversed(range(60))]), stored) > 1e-2


def test_the_server_evaluates_any_fitting_dataset(client, trained, tmp_path):
    job, graphs, test = trained
    told = job.evaluate(metrics=["mae", "r2"])
    assert told["dataset"] == "trained" and told["rows"] == "test" and told["num_rows"] == len(test)
    assert told["loss"] == job.result["best_test_loss"]
    assert told["mae"] == pytest.approx(job.result["best_test_metric"], rel=1e-6)
    assert job.predictions() == job.predict()
    # Predicts for the same graphs in another dataset: all of them, whatever split they are in.
    client.datasets.import_pyg(graphs[:20], "fewer", splits={"train": range(20)}, progress=False)
    other = job.predictions("fewer")
    assert list(other) == [str(i) for i in range(20)]
    assert difference(job.predict(graphs), other) < TOLERANCE
    path = job.predictions(rows="valid", path=tmp_path / "valid.csv")
    assert path.read_text().startswith("graph,prediction_0,prediction_1\n40,")
    with pytest.raises(permafrost.InvalidArgument, match="accuracy does not measure"):
        job.evaluate(metrics=["accuracy"])
    with pytest.raises(permafrost.InputError, match="'half' is none of train, valid, test, all"):
        job.evaluate(rows="half")


@pytest.mark.parametrize(("model", "fields"), [
    ("gcn", {}),
    ("sage", {}),
    ("sage", {"fan_outs": [5, 5], "layer_wise_evaluation": True}),
])
def test_node_models(client, model, fields):
    data = citations()
    if "nodes" not in [dataset.id for dataset in client.datasets]:
        client.datasets.import_pyg(data, "nodes", progress=False)
    job = client.jobs.submit("nodes", model, epochs=10, hidden_channels=8, learning_rate=0.05, **fields).wait()
    assert job.result["best_test_metric"] > 0.8
    module = job.to_pyg()
    assert module.spec["architecture"] == model
    assert not module.training
    assert difference(job.predict(data), job.predict()) < TOLERANCE


def test_links(client):
    data = citations()
    client.datasets.import_pyg(data, "linked", progress=False)
    job = client.jobs.submit("linked", "sage", epochs=5, hidden_channels=8, decoder="mlp", valid_part=0, eval_negatives=9).wait()
    stored = job.predict()
    pairs = torch.tensor([[int(link.source), int(link.target)] for link in stored]).T
    held_out = {pair for source, target in pairs.T.tolist() for pair in ((source, target), (target, source))}
    kept = [tuple(edge) not in held_out for edge in data.edge_index.T.tolist()]
    assert 0 < pairs.size(1) < sum(kept)
    messages = data.edge_index[:, torch.tensor(kept)]
    assert all(1 <= link.rank <= 10 for link in stored)
    made = job.predict(Data(x=data.x, edge_index=messages), pairs)
    assert (made - torch.tensor([link.score for link in stored])).abs().max() < TOLERANCE
    with pytest.raises(permafrost.InputError, match="pairs are given without data"):
        job.predict(pairs=pairs)
    with pytest.raises(permafrost.InputError, match="the model does not predict links"):
        nodes = client.jobs.submit("linked", "sage", epochs=1, hidden_channels=8).wait()
        nodes.predict(data, pairs)


@pytest.mark.parametrize(("change", "told"), [
    ({"architecture": "mlp"}, r"architecture: mlp \(graph\) is none of gine \(graph\), "),
    ({"sharpness": 0.5}, "sharpness: 0.5: this permafrost-client does not know it"),
])
def test_a_description_that_no_module_equals_is_refused(trained, change, told):
    from permafrost import models

    spec = trained[0].to_pyg().spec
    models.build({**spec, "sharpness": False})
    with pytest.raises(ValueError, match=told):
        models.build({**spec, **change})


SET_MODELS = [
    ("gine", {"residual": True, "norm": "layer"}),
    ("gine", {"virtual_node": True, "jumping_knowledge": "cat"}),
    ("gin", {}),
    ("gin", {"norm": "none", "jumping_knowledge": "max", "pooling": "sum"}),
    ("gcn", {"virtual_node": True, "residual": True}),
    ("sage", {"norm": "layer", "jumping_knowledge": "cat"}),
    ("gatv2", {"heads": 4}),
    ("gatv2", {"norm": "none", "residual": True, "virtual_node": True}),
]


@pytest.mark.parametrize(("model", "fields"), SET_MODELS)
def test_every_model_of_sets_is_a_module(client, trained, model, fields):
    _, graphs, _ = trained
    job = client.jobs.submit("trained", model, epochs=3, batch_size=8, hidden_channels=16, num_layers=3, loss="mse", **fields).wait()
    assert difference(job.predict(graphs), job.predict()) < TOLERANCE


NODE_FIELDS = [
    ("gcn", {"norm": "batch", "jumping_knowledge": "cat", "residual": True}),
    ("sage", {"norm": "layer", "residual": True, "input_dropout": 0.2, "dropout": 0.3}),
    ("gin", {}),
    ("gin", {"norm": "batch", "jumping_knowledge": "max"}),
    ("gatv2", {"heads": 4, "normalize_features": True}),
    ("gatv2", {"heads": 2, "jumping_knowledge": "cat", "norm": "layer"}),
]


@pytest.mark.parametrize(("model", "fields"), NODE_FIELDS)
def test_every_model_of_nodes_is_a_module(client, model, fields):
    data = citations()
    if "nodes" not in [dataset.id for dataset in client.datasets]:
        client.datasets.import_pyg(data, "nodes", progress=False)
    job = client.jobs.submit("nodes", model, epochs=5, hidden_channels=8, num_layers=3, learning_rate=0.02, **fields).wait()
    assert difference(job.predict(data), job.predict()) < TOLERANCE


def test_node2vec_is_an_embedding_of_the_nodes(client):
    data = citations()
    client.datasets.import_pyg(data, "walked", progress=False)
    options = {"hidden_channels": 16, "epochs": 80, "learning_rate": 0.05, "walk_length": 8, "context_size": 4, "p": 0.5, "q": 2, "batch_size": 50}
    job = client.jobs.submit("walked", "node2vec", **options).wait()
    assert len(job.predict()) == 30
    assert difference(job.predict(data), job.predict()) < TOLERANCE
    rows = job.predictions()
    assert list(rows) == [str(node) for node in range(120)]
    module = job.to_pyg()
    assert torch.allclose(module(), torch.tensor(list(rows.values())), atol=1e-6)
    assert module(torch.tensor([3, 5])).equal(module()[[3, 5]])
    assert list(module.state_dict()) == ["embedding.weight"]
    # Nodes link only to nodes of their own class, so walks stay within a class.
    same = data.y[:, None] == data.y[None, :]
    scores = module() @ module().T
    assert scores[same].mean() > scores[~same].mean() + 0.5
    with pytest.raises(ValueError, match="data: has 3 nodes, and the embeddings are of 120"):
        job.predict(Data(num_nodes=3, edge_index=torch.zeros(2, 0, dtype=torch.long)))
    with pytest.raises(permafrost.InvalidArgument, match="spec.model.dropout: is given for node2vec"):
        client.jobs.submit("walked", "node2vec", dropout=0.5)


EDGE_FIELDS = [("gine", {}), ("gine", {"norm": "batch", "jumping_knowledge": "max"}), ("gatv2", {"heads": 2})]


@pytest.mark.parametrize("columns", ["floats", "categories"])
@pytest.mark.parametrize(("model", "fields"), EDGE_FIELDS)
def test_every_model_that_reads_edges_is_a_module(client, model, fields, columns):
    data = citations()
    ends = data.edge_index.sum(dim=0)
    data.edge_attr = torch.stack([ends % 5, ends % 3], dim=1)
    if columns == "floats":
        data.edge_attr = data.edge_attr.float() / 4
    if columns not in [dataset.id for dataset in client.datasets]:
        client.datasets.import_pyg(data, columns, progress=False)
    job = client.jobs.submit(columns, model, epochs=5, hidden_channels=8, num_layers=2, learning_rate=0.02, **fields).wait()
    assert difference(job.predict(data), job.predict()) < TOLERANCE
    data.edge_attr = None
    with pytest.raises(ValueError, match="data: has no edge_attr, which the model reads"):
        job.predict(data)


def test_metrics(trained):
    job, _, _ = trained
    table = job.metrics()
    assert list(table.index) == [1, 2, 3, 4]
    assert table["train_loss"].notna().all()
    assert set(table["metric"]) == {"mae"}
    assert job.result["best_valid_metric"] == table["valid_metric"].min()
    assert job.result["metric"] == "mae"


def test_every_metric_has_a_column(client, trained):
    job = client.jobs.submit("trained", epochs=2, hidden_channels=8, num_layers=1, metrics=["mae", "rmse"]).wait()
    table = job.metrics()
    assert list(table["valid_mae"]) == list(table["valid_metric"])
    assert (table["valid_rmse"] >= table["valid_mae"]).all()
    assert "valid_metrics" not in table.columns
    assert job.epochs()[1]["valid_rmse"] == table["valid_rmse"][2]
    assert list(job.result["best_test_metrics"]) == ["mae", "rmse"]
    assert job.result["best_test_metrics"]["mae"] == job.result["best_test_metric"]
    assert all(isinstance(value, (int, float, str, dict)) for value in job.result.values())


def test_a_job_begins_with_the_weights_of_another(client, trained):
    first, _, _ = trained
    for begun in (first, "trained", {"job": first, "weights": "last"}):
        job = client.jobs.submit("trained", "gine", epochs=1, hidden_channels=16, num_layers=2, init_from=begun)
        assert job.proto.spec.init_from.job == "jobs/trained"
        job.wait()


def test_compare(client, trained):
    first, _, _ = trained
    other = client.jobs.submit("trained", "gine", epochs=2, batch_size=8, hidden_channels=16, num_layers=2, loss="mse").wait()
    table = client.jobs.compare(first, other.id)
    assert list(table.columns) == ["trained", other.id]
    assert list(table.loc["epochs"]) == ["4", "2"]
    assert "model.hidden_channels" not in table.index, "it is the same"
    assert table.loc["best_test_metrics.mae", "trained"] == first.result["best_test_metric"]
    with pytest.raises(permafrost.NotFound):
        client.jobs.compare("none")


def test_graphs_without_features_train_on_degrees(client):
    """PyG's examples do the same for IMDB and similar sets."""
    graphs = [Data(edge_index=graph.edge_index, y=graph.y, num_nodes=graph.num_nodes) for graph in molecules()]
    client.datasets.import_pyg(graphs, "bare", split_seed=1, progress=False)
    job = client.jobs.submit("bare", "sage", epochs=3, hidden_channels=8, num_layers=2).wait()
    assert job.proto.spec.model.node_inputs == 3
    assert job.result["best_valid_metric"] < 100
    assert difference(job.predict(graphs), job.predict()) < TOLERANCE


def test_without_pandas_it_says_so(trained, monkeypatch):
    job, _, _ = trained
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(permafrost.InputError, match=r"needs the package pandas: pip install 'permafrost-client\[pandas\]'"):
        job.metrics()
    assert len(job.epochs()) == 4


@pytest.mark.parametrize("terminal", [True, False])
def test_watch_ends_with_the_job(client, trained, capsys, monkeypatch, terminal):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    job = client.jobs.submit("trained", epochs=3, hidden_channels=8, num_layers=1)
    assert job.watch().state == "succeeded"
    assert [epoch.epoch for epoch in job.proto.epochs] == [1, 2, 3]
    shown = capsys.readouterr().err
    assert "epoch 3/3" in shown if terminal else shown == ""


def test_logs(trained):
    job, _, _ = trained
    text = job.logs()
    assert re.search(r"epoch 4/4 .*\n", text)
    assert "".join(job.logs(follow=True)) == text


def test_export(trained, tmp_path):
    job, _, _ = trained
    path = job.export(tmp_path / "last.safetensors", "last_weights")
    assert path.stat().st_size > 1000
    assert [p.name for p in tmp_path.iterdir()] == ["last.safetensors"]
    from permafrost import models

    assert models.load(path).spec["hidden_channels"] == 16
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to("last.safetensors")
    size = job.export(link, "best_weights").stat().st_size
    assert link.is_symlink() and path.stat().st_size == size
    os.mkfifo(pipe)
    with subprocess.Popen(["timeout", "60", "cat", pipe], stdout=subprocess.PIPE) as reader:
        job.export(pipe)
        assert reader.stdout.read() == path.read_bytes()
    assert pipe.is_fifo()
    with pytest.raises(permafrost.InputError, match="is a directory"):
        job.export(tmp_path)
    with pytest.raises(permafrost.InputError, match="artifact: 'wights' is none of best_weights"):
        job.export(tmp_path / "other", "wights")


def test_a_received_file_has_the_rights_of_any_new_file(tmp_path):
    import xxhash

    from permafrost import artifacts

    before = os.umask(0o027)
    try:
        pieces = iter([(b"abc", 3, xxhash.xxh3_64_hexdigest(b"abc"))])
        path = artifacts.receive("it", pieces, tmp_path / "file")
    finally:
        os.umask(before)
    assert path.read_bytes() == b"abc"
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_cancel_and_what_then_is_not_there(client, trained):
    job = client.jobs.submit("trained", epochs=100_000, hidden_channels=8)
    next(state for state in job.states() if state.proto.progress.step > 0)
    with pytest.raises(permafrost.FailedPrecondition):
        job.delete()
    job.cancel()
    with pytest.raises(permafrost.JobFailed, match=f"job {job.id} was cancelled"):
        job.wait()
    assert job.wait(check=False).state == "cancelled"
    assert job.result == {}
    with pytest.raises(permafrost.FailedPrecondition):
        job.predict()
    job.delete()
    with pytest.raises(permafrost.NotFound):
        client.jobs.get(job.id)


def test_the_graph_cache(client, trained):
    job = client.jobs.submit("trained", epochs=100_000, hidden_channels=8, graph_cache="always")
    next(state for state in job.states() if state.proto.progress.step > 0)
    cache = client.cache(job)
    assert cache.policy().policy == 1
    assert cache.freeze().frozen
    assert not cache.thaw().frozen
    assert cache.policy(policy="never").policy == 2
    assert cache.stats()["train"]["captures"] >= 1
    with pytest.raises(permafrost.InputError, match="policy: 'often' is none of always"):
        cache.policy(policy="often")
    assert "captures" in cache._repr_html_()
    job.cancel().wait(check=False)
    with pytest.raises(permafrost.FailedPrecondition):
        cache.freeze()


def test_lists(client, trained):
    assert trained[0].id in [job.id for job in client.jobs.list("succeeded")]
    assert trained[0].id not in [job.id for job in client.jobs.list("running", "queued")]


def test_what_a_notebook_shows(client, trained):
    job, _, _ = trained
    assert repr(job).startswith("<Job trained succeeded: epoch 4/4, loss ")
    for shown in (client, client.jobs, client.datasets, client.datasets.get("trained"), job):
        assert shown._repr_html_().startswith("<div><b>")
        assert "\n" not in repr(shown)


def test_a_restart_does_not_end_a_wait(make_server):
    import threading

    server = make_server()
    client = server.connect()
    client.datasets.import_pyg(molecules(), "set", progress=False)
    job = client.jobs.submit("set", epochs=400, hidden_channels=16, every_steps=50)
    next(state for state in job.states() if state.proto.progress.step > 100)
    server.kill()
    again = threading.Timer(0.5, server.start)
    again.start()
    assert job.wait().state == "succeeded"
    again.join()
    assert [epoch.epoch for epoch in job.proto.epochs] == list(range(1, 401))
    assert job.proto.resumes == 1
