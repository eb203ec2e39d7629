"""Tests kill -9 at random times, and at each place where a crash would hurt most, while users make calls."""

import functools
import random
import time

import grpc

from tests.torture.oracle import GONE, Oracle, User, settle
from tests.torture.world import Server, contract, folder_of, job_spec, losses, state_of, write_set

SEEDS = (1, 2, 3)
USERS = ("first", "second")

# Maps each place of death to a rule of faults.cc, and the upper bound of its `{nth}`, which is drawn from 1.
FAILPOINTS = {
    "a job's folder is made": ("mkdir:/jobs/j:{nth}:kill", 6),
    "a job's log is opened": ("open:/log:{nth}:kill", 12),
    "the database is written": ("write:permafrost.db:{nth}:kill", 200),
    "the database was written": ("write:permafrost.db:{nth}:kill-after", 200),
    "half of a page of the database is written": ("write:permafrost.db:{nth}:short;fsync:permafrost.db:{nth}:kill", 60),
    "the database is brought to disk": ("fsync:permafrost.db:{nth}:kill", 60),
    "the database was brought to disk": ("fsync:permafrost.db:{nth}:kill-after", 60),
    "a checkpoint's folder is made": ("mkdir:/checkpoints/:{nth}:kill", 12),
    "a checkpoint's file is written": ("write:/checkpoints/:{nth}:kill", 60),
    "a checkpoint's file is brought to disk": ("fsync:/checkpoints/:{nth}:kill", 60),
    "a checkpoint gets its name": ("rename:/checkpoints/:{nth}:kill", 12),
    "a checkpoint got its name": ("rename:/checkpoints/:{nth}:kill-after", 12),
    "an older checkpoint is removed": ("unlink:/checkpoints/:{nth}:kill", 60),
    "an artifact gets its name": ("rename:/artifacts/:{nth}:kill", 30),
    "an artifact is linked": ("link:/artifacts/:{nth}:kill", 30),
    "a deleted job's folder is renamed": ("rename:.deleted-:{nth}:kill", 3),
    "a deleted job's files go": ("unlink:.deleted-:{nth}:kill", 20),
    "a plan gets its name": ("rename:/plans/:{nth}:kill", 2),
    "the endpoint gets its name": ("rename:endpoint.json:1:kill", 1),
}


@functools.cache
def undisturbed(bin_dir, epochs=4, seeds=SEEDS):
    """Returns the losses of an undisturbed job by seed."""
    want = {}
    with folder_of("undisturbed") as folder:
        server = Server(bin_dir, folder).start()
        server.import_dataset("set", write_set(server.import_root / "set"))
        for seed in seeds:
            server.jobs.CreateJob(contract().CreateJobRequest(job_id=f"j{seed}", spec=job_spec(epochs=epochs, seed=seed)), timeout=30)
            ended = server.await_end(f"j{seed}")
            assert state_of(ended) == "SUCCEEDED", ended.error
            want[seed] = losses(ended)
        assert server.stop() == 0
    assert len({str(value) for value in want.values()}) == len(seeds), "seeds that give equal losses tell nothing"
    return want


class Life:
    """One life of a server with its users, up to its death."""

    def __init__(self, server, oracle, draw, faults=()):
        self.server = server
        server.launch(faults)
        self.ready = server.await_ready()
        self.users = [User(server, oracle, key, draw.getrandbits(64)) for key in USERS] if self.ready else []
        if self.ready:
            try:
                oracle.check_list(server)
            except grpc.RpcError as error:
                if error.code() not in GONE:
                    raise
        for user in self.users:
            user.start()

    def end(self):
        self.server.process.wait(timeout=120)
        for user in self.users:
            user.join(timeout=60)
            assert not user.is_alive(), "a call did not end with the server"
            if user.broken:
                raise user.broken
        self.server.close()


def random_kills(bin_dir, seed, count, seconds):
    """Tests `count` kills. Fails if fewer begin within `seconds`."""
    draw = random.Random(seed)
    oracle = Oracle(undisturbed(bin_dir))
    with folder_of("kills") as folder:
        server = Server(bin_dir, folder).start()
        server.import_dataset("set", write_set(server.import_root / "set"))
        assert server.stop() == 0
        kills, began = 0, time.monotonic()
        while kills < count and time.monotonic() - began < seconds:
            kills += 1
            life = Life(server, oracle, draw)
            # Some servers die while they start, others in the middle of a job.
            time.sleep(draw.choice([0, 0.05, 0.3, 1, 2]) * draw.random())
            server.process.kill()
            life.end()
        assert kills == count, f"{kills} kills in {seconds} s, {count} are needed"
        server.start()
        jobs = settle(server, oracle)
        assert server.stop() == 0
    return told(oracle, jobs, f"{kills} kills")


def failpoints(bin_dir, seed, count, places):
    draw = random.Random(seed)
    want = undisturbed(bin_dir)
    met, tries, jobs_seen, calls = dict.fromkeys(FAILPOINTS, 0), 0, 0, 0
    chosen = draw.sample(sorted(FAILPOINTS), places)
    for name, (rules, most) in ((name, FAILPOINTS[name]) for name in chosen):
        oracle = Oracle(want)
        with folder_of("failpoint") as folder:
            server = Server(bin_dir, folder).start()
            server.import_dataset("set", write_set(server.import_root / "set"))
            assert server.stop() == 0
            # A try may draw a call that does not occur, so there are up to three times as many tries as deaths
            # needed.
            for _ in range(3 * count):
                if met[name] == count:
                    break
                tries += 1
                # A few plans serve all jobs. Once each has its name, none would be written any more, so they are
                # removed.
                for plan in (server.state_dir / "plans").glob("*.plan"):
                    plan.unlink()
                faults = rules.format(nth=1 + draw.randrange(most)).split(";")
                life = Life(server, oracle, draw, faults)
                deadline = time.monotonic() + 4
                while server.running() and time.monotonic() < deadline:
                    time.sleep(0.01)
                met[name] += not server.running()
                if server.running():
                    server.process.kill()
                life.end()
            server.start()
            jobs_seen += len(settle(server, oracle))
            calls += oracle.calls
            assert server.stop() == 0
    less = {name: times for name, times in met.items() if name in chosen and times < count}
    assert any(met.values()), "no process died at its place: the faults are not loaded"
    # With few tries, all may draw a call that does not occur.
    assert not less or count < 5, f"fewer than {count} processes died where {less}"
    return f"{places} places, {sum(met.values())} of {tries} processes died there; {calls} calls, {jobs_seen} jobs; none lost"


def told(oracle, jobs, what):
    ended = sum(state_of(job) == "SUCCEEDED" for job in jobs)
    return (f"{what}: {oracle.calls} calls answered, {len(oracle.seeds)} jobs acknowledged, {len(oracle.deleted)} deleted, "
            f"{len(oracle.cancelled)} cancelled, {ended} succeeded with equal losses; none lost")
