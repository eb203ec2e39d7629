"""Labels, filters, pause, resume, retry, update and checkpoints against the real daemon."""

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
    assert job.resume().state in ("queued", "running")
    job.cancel().wait(check=False)
    assert job.state == "cancelled"
    assert job.retry().state in ("queued", "running")
    assert job.cancel().wait(check=False).state == "cancelled"
    with pytest.raises(permafrost.FailedPrecondition):
        job.pause()


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
