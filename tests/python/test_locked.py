"""Tests a database that another process has locked: training and reading go on, and a change that could not be stored
does not happen."""

import sqlite3
import time

import permafrost
import pytest

from tests.python.data import molecules


@pytest.fixture
def locked(make_server):
    """Yields a client of a server whose job trains, and a lock that holds until it is rolled back."""
    server = make_server()
    client = server.connect()
    client.datasets.import_pyg(molecules(), "set", progress=False)
    job = client.jobs.submit("set", "gine", id="trains", epochs=20_000, batch_size=8, hidden_channels=8, num_layers=2)
    while job.refresh().state != "running":
        time.sleep(0.01)
    lock = sqlite3.connect(server.state_dir / "permafrost.db", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    yield server, job, lock
    if lock.in_transaction:
        lock.rollback()
    lock.close()
    job.cancel().wait(check=False)


def test_training_and_reading_go_on(locked):
    server, job, lock = locked
    client = server.connect()
    # More epochs than would pass if each waited for the lock.
    goal = job.refresh().proto.progress.epoch + 20
    while job.refresh().proto.progress.epoch < goal:
        assert [each.id for each in client.jobs.list()] == ["trains"]
    assert lock.in_transaction
    stored = lock.execute("SELECT MAX(epoch) FROM epochs").fetchone()[0] or 0
    assert stored < goal, "it was locked all the time"
    lock.rollback()
    while (lock.execute("SELECT MAX(epoch) FROM epochs").fetchone()[0] or 0) < goal:
        time.sleep(0.01)


def test_a_submit_that_could_not_be_stored_in_time_is_not_done_later(locked):
    server, job, lock = locked
    client = permafrost.Client(server.target, timeout=20, patience=0)
    with client, pytest.raises(permafrost.Unavailable, match="locked by another process"):
        client.jobs.submit("set", "gine", id="ghost", epochs=1)
    lock.rollback()
    # The server stores this only after everything that was still to be stored.
    job.update(labels={"after": "lock"})
    with pytest.raises(permafrost.NotFound):
        server.connect().jobs.get("ghost")
