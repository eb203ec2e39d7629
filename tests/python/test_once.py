"""Tests that calls whose answers were lost are made again, and take effect once."""

import types

import permafrost
import pytest

from tests.python.data import molecules


@pytest.fixture
def lossy(client, monkeypatch):
    """Loses the first answer to each request after the server has done the work. Yields a client, and those answers
    by request_id."""
    connection, seen = client._connection, {}
    call = connection.call

    def lose_first(method, request, timeout=None):
        answer = call(method, request, timeout)
        request_id = getattr(request, "request_id", "")
        if request_id and request_id not in seen:
            seen[request_id] = answer
            raise permafrost.Unavailable("the answer was lost")
        return answer

    monkeypatch.setattr(connection, "call", lose_first)
    return seen


def test_a_dataset_is_imported_and_deleted_once(client, lossy):
    dataset = client.datasets.import_pyg(molecules(), "once", progress=False)
    assert dataset.id == "once"
    client.datasets.delete("once")
    with pytest.raises(permafrost.NotFound):
        client.datasets.get("once")
    assert len(lossy) >= 2


def test_a_command_to_a_cache_is_given_once(client, lossy):
    client.datasets.import_pyg(molecules(), "commands", progress=False)
    job = client.jobs.submit("commands", "gine", epochs=20_000, batch_size=8, hidden_channels=8, num_layers=2)
    cache = client.cache(job)
    lossy.clear()
    told = cache.freeze()
    (lost,) = lossy.values()
    assert told.frozen
    assert told.command_step == lost.command_step, "the command took effect once"
    job.cancel().wait(check=False)


@pytest.fixture
def lost(monkeypatch):
    """Returns a connection without a server, which does not wait between tries."""
    from permafrost.connection import Connection

    connection = Connection("127.0.0.1:1", timeout=1, patience=60)
    monkeypatch.setattr(connection, "pause", lambda error: None)
    yield connection
    connection.close()


def test_what_a_dying_server_cancelled_is_made_again(lost, monkeypatch):
    outcomes = [permafrost.Cancelled("the server is gone"), permafrost.Unavailable("no server"), 7]

    def attempt(*_):
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(lost, "stream", lambda *_: iter([attempt()]))
    assert lost.patiently(attempt) == 7
    outcomes += [permafrost.Cancelled("the server is gone"), permafrost.Aborted("too slow"), 8]
    assert list(lost.follow(None, lambda: None)) == [8]


def test_what_this_client_cancelled_is_not_made_again(lost, monkeypatch):
    def attempt(*_):
        lost.close()
        raise permafrost.Cancelled("Channel closed!")

    monkeypatch.setattr(lost, "stream", attempt)
    with pytest.raises(permafrost.Cancelled):
        lost.patiently(attempt)
    with pytest.raises(permafrost.Cancelled):
        list(lost.follow(None, lambda: None))


def test_changes_that_were_passed_over_are_told(caplog):
    from permafrost.connection import _tell_passed_over

    _tell_passed_over(types.SimpleNamespace(trailing_metadata=lambda: (("permafrost-dropped-states", "17"),)))
    _tell_passed_over(types.SimpleNamespace(trailing_metadata=lambda: None))
    assert [record.getMessage() for record in caplog.records] == [
        "17 changes were passed over: they came faster than they were taken"
    ]
