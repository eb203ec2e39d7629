"""Tests how the client finds the server, and how errors arrive."""

import pytest

import permafrost
from permafrost import Client


def test_the_target_is_the_first_that_is_given(server, monkeypatch, tmp_path):
    monkeypatch.setenv("PERMAFROST_SERVER", "10.0.0.1:1")
    assert Client("10.0.0.2:2", state_dir=server.state_dir).target == "10.0.0.2:2"
    assert Client(state_dir=server.state_dir).target == server.target
    assert Client().target == "10.0.0.1:1"
    monkeypatch.delenv("PERMAFROST_SERVER")
    assert Client().target == "127.0.0.1:7433"
    with pytest.raises(permafrost.Unavailable, match="endpoint.json: not found"):
        Client(state_dir=tmp_path)
    (tmp_path / "endpoint.json").write_text("{}")
    with pytest.raises(permafrost.InputError, match="says no address"):
        Client(state_dir=tmp_path)


def test_nobody_there_is_told_with_the_address():
    with pytest.raises(permafrost.Unavailable, match="no server answers at 127.0.0.1:1 ") as caught:
        Client("127.0.0.1:1", patience=0).datasets.list()
    assert "\n" not in str(caught.value)


def test_every_violation_arrives(client):
    from tests.python.data import molecules

    client.datasets.import_pyg(molecules(12), "violations", progress=False)
    with pytest.raises(permafrost.InvalidArgument) as caught:
        client.jobs.validate("violations", epochs=-3, batch_size=-1, hidden_channels=0)
    told = {v.field: v.description for v in caught.value.violations}
    assert set(told) == {"spec.epochs", "spec.batch_size", "spec.model.hidden_channels"}
    assert told["spec.model.hidden_channels"] == "0 is outside 1..4096"
    assert caught.value.code == "INVALID_ARGUMENT"
    assert "\n" not in str(caught.value)


def test_reasons_arrive(client):
    with pytest.raises(permafrost.NotFound) as caught:
        client.jobs.submit("nowhere")
    assert caught.value.reason == "DATASET_NOT_FOUND"
    assert caught.value.metadata == {"dataset": "nowhere"}


@pytest.mark.parametrize(("fields", "told"), [
    ({"epoch": 3}, "epoch: there is no such field; the nearest is epochs"),
    ({"lerning_rate": 3}, "the nearest is learning_rate"),
    ({"loss": "l3"}, "loss: 'l3' is none of l1, mse, cross_entropy, bce"),
    ({"epochs": "many"}, "epochs: 'many'"),
    ({"optimizer": {"algorithm": "adamw", "rate": 1}}, "optimizer: rate: there is no such field"),
    ({"optimizer": 3}, "optimizer: 3: a dict of its fields is expected"),
])
def test_a_field_that_cannot_be_sent_is_named(client, fields, told):
    with pytest.raises(permafrost.InputError, match=told):
        client.jobs.submit("any", **fields)


def test_fields_go_where_they_belong():
    from permafrost import fields
    from permafrost.v1 import job_pb2, sampling_pb2

    import numpy

    spec = job_pb2.JobSpec()
    fields.fill(spec, {"model": "sage", "hidden_channels": numpy.int64(8), "optimizer": "adamw", "learning_rate": 0.5, "loss": "cross-entropy",
                       "fan_outs": (5, 3), "temporal": "last", "seed_time": 0, "sampler": "neighbor", "graph_cache": {"policy": "clear_per_step"}, "every_seconds": 0, "priority": None}, "submit")
    assert spec.model.architecture == job_pb2.ModelSpec.ARCHITECTURE_SAGE
    assert spec.model.hidden_channels == 8
    assert spec.optimizer.algorithm == job_pb2.OptimizerSpec.ALGORITHM_ADAMW
    assert spec.optimizer.learning_rate == 0.5
    assert spec.loss == job_pb2.JobSpec.LOSS_CROSS_ENTROPY
    assert list(spec.neighbor_sampling.fan_outs) == [5, 3]
    assert spec.neighbor_sampling.temporal == sampling_pb2.TEMPORAL_SAMPLING_LAST
    assert spec.neighbor_sampling.HasField("seed_time")
    assert spec.neighbor_sampling.sampler == sampling_pb2.SAMPLER_KIND_NEIGHBOR
    assert spec.graph_cache.policy == 3
    assert spec.checkpoint.HasField("every_seconds")
