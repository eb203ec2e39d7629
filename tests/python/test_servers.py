"""Tests two daemons: a job goes to the one that begins it first, and their queues are shown as one."""

import datetime
import uuid

import pytest

import permafrost
from tests.python.conftest import Server
from tests.python.data import molecules

MODEL = {"model": "gine", "batch_size": 8, "hidden_channels": 8, "num_layers": 2}
LONG = {**MODEL, "epochs": 20_000}


@pytest.fixture(scope="module")
def pair(pytestconfig, tmp_path_factory):
    """Starts two daemons with equal datasets "same" and different datasets "other". The first daemon takes at most
    three jobs."""
    made = []
    for flags in (("--max-jobs", "3"), ()):
        made.append(Server(pytestconfig.getoption("--bin-dir"), tmp_path_factory.mktemp("server"), *flags).start())
        client = made[-1].connect()
        client.datasets.import_pyg(molecules(), "same", progress=False)
        client.datasets.import_pyg(molecules(20 + len(made)), "other", progress=False)
    yield [one.target for one in made]
    for one in made:
        one.stop()


@pytest.fixture
def servers(pair):
    with permafrost.Servers(pair) as both:
        yield both
        for jobs in both.queue().values():
            for job in jobs:
                job.cancel().wait(check=False)


def test_a_job_goes_where_it_begins_first(servers, pair):
    first, second = pair
    assert servers.submit("same", **LONG).target == first, "both are idle"
    assert servers.submit("same", **LONG).target == second, "it is idle"
    assert servers.submit("same", **LONG).target == first, "as many are ahead"
    assert servers.submit("same", **LONG).target == second
    paused = servers.submit("same", **LONG)
    assert paused.target == first
    paused.pause()
    with pytest.warns(UserWarning, match=f"passed over: {first}: 3 jobs have not ended"):
        assert servers.submit("same", priority=5, **LONG).target == second, "nothing is ahead of it on either"
    queue = servers.queue()
    assert list(queue) == [first, second]
    assert [job.state for job in queue[first]][1:] == ["queued", "paused"]
    assert [job.proto.spec.priority for job in queue[second]].count(5) == 1


def test_the_same_id_comes_back(servers, pair):
    name = f"again-{uuid.uuid4().hex[:8]}"
    job = servers.submit("same", id=name, **LONG)
    assert job.target == pair[0]
    servers.submit("same", **LONG)
    again = servers.submit("same", id=name, deadline=datetime.timedelta(hours=9), **LONG)
    assert (again.target, again.id) == (pair[0], name)
    with pytest.raises(permafrost.AlreadyExists):
        servers.submit("same", id=name, **{**LONG, "epochs": 3})


def test_what_cannot_be_placed_is_refused(servers, pair):
    with pytest.raises(permafrost.FailedPrecondition, match="datasets/other: accepted: equal content on all servers"):
        servers.submit("other", **LONG)
    with pytest.raises(permafrost.NotFound, match=f"{pair[0]}: datasets/none: not found"):
        servers.submit("none", **LONG)
    with pytest.raises(permafrost.InvalidArgument, match=f"{pair[0]}: spec.replicas: 2"):
        servers.submit("same", replicas=2, **LONG)
    with pytest.raises(permafrost.InputError, match="init_from: its weights are on one server"):
        servers.submit("same", init_from="first", **LONG)
    with pytest.raises(permafrost.InputError, match="same server"):
        permafrost.Servers([pair[0], pair[0].replace("127.0.0.1", "localhost")]).submit("same", **LONG)
    with pytest.raises(permafrost.InputError, match="accepted: a list of addresses"):
        permafrost.Servers(pair[0])
    assert not any(servers.queue().values())


def test_a_server_that_is_away_is_told(pair):
    with permafrost.Servers([pair[0], "127.0.0.1:1"], timeout=5) as both:
        with pytest.warns(UserWarning, match="no server answers at 127.0.0.1:1 "):
            assert list(both.queue()) == [pair[0]]
        with pytest.raises(permafrost.Unavailable):
            both.submit("same", id="any", **LONG)
