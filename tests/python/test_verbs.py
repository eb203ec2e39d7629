"""Tests labels, filters, pause, resume, retry, update and checkpoints against the real daemon."""

import datetime

import pytest

import permafrost
from tests.python.data import molecules


@pytest.fixture(scope="module")
def dataset(client):
    return client.datasets.import_pyg(molecules(), "verbs", progress=False)


def test_a_job_is_paused_resumed_cancelled_and_retried(client, dataset):
    job = client.jobs.submit(dataset, "gine", epochs=20_000, batch_size=8, hidden_channels=8, num_layers=2, labels={"team": "gnn"})
    assert job.labels == {"team": "gnn"}
    for seen in job.states():
        if seen.proto.progress.step > 3:
            break
    job.pause()
    for seen in job.states():
        if seen.state == "paused":
            break
    newest = job.checkpoints(verify=True)[0]
    assert newest["state"] == "complete"
    assert newest["step"] == job.proto.progress.step
    assert newest["total_bytes"] > 1000
    assert newest["create_time"] >= job.proto.create_time.ToDatetime(tzinfo=newest["create_time"].tzinfo)
    assert not job.resume().ended
    job.cancel().wait(check=False)
    assert job.state == "cancelled"
    assert not job.retry().ended
    assert job.cancel().wait(check=False).state == "cancelled"
    with pytest.raises(permafrost.FailedPrecondition):
        job.pause()


def test_a_job_tells_its_states_and_keeps_to_its_limits(client, dataset):
    job = client.jobs.submit(
        dataset, "gine", epochs=100_000, batch_size=8, max_runtime=0.3, deadline=datetime.timedelta(days=1)
    )
    job.wait(check=False)
    assert job.state == "failed"
    assert job.error_reason == "MAX_RUNTIME"
    changes = job.state_changes
    assert [change["state"] for change in changes][:2] == ["queued", "preparing"]
    assert changes[0]["reason"] == "SUBMITTED"
    assert changes[-1]["state"] == "failed" and changes[-1]["reason"] == "MAX_RUNTIME"
    assert all(change["time"].tzinfo is not None for change in changes)
    assert job.device_time >= datetime.timedelta(seconds=0.3)
    with pytest.raises(permafrost.FailedPrecondition, match="would fail again"):
        job.retry()
    job.update(max_runtime=datetime.timedelta(hours=1), deadline="none")
    assert job.proto.spec.max_runtime.seconds == 3600
    assert not job.proto.spec.HasField("deadline")
    assert not job.retry().ended
    assert job.cancel().wait(check=False).state == "cancelled"
    assert job.error_reason == ""
    job.delete()
    with pytest.raises(permafrost.InputError, match="time zone"):
        client.jobs.submit(dataset, "gine", deadline=datetime.datetime(2033, 1, 1))
    with pytest.raises(permafrost.InputError, match="max_runtime"):
        client.jobs.submit(dataset, "gine", max_runtime="soon")


def test_jobs_are_found_by_label_and_updated(client, dataset):
    jobs = [client.jobs.submit(dataset, "gine", epochs=1, labels={"n": str(n), "group": "found"}) for n in range(2)]
    assert [job.id for job in client.jobs.list(filter='labels.group = "found" AND labels.n = "1"')] == [jobs[1].id]
    stale = client.jobs.get(jobs[0].id)
    updated = jobs[0].update(priority=7, labels={"n": None, "stage": "done"})
    assert updated.labels == {"group": "found", "stage": "done"}
    assert updated.proto.spec.priority == 7
    with pytest.raises(permafrost.Aborted):
        stale.update(priority=8, only_if_unchanged=True)
    assert stale.update(labels={"n": "0"}).labels == {"group": "found", "stage": "done", "n": "0"}
    with pytest.raises(permafrost.InvalidArgument, match="at character 1"):
        client.jobs.list(filter="colour = red")
    for job in jobs:
        assert job.wait().state == "succeeded"
