"""Remembers what the server has acknowledged, and must therefore never forget."""

import random
import threading
import typing
import uuid

import grpc

from tests.torture.world import ENDED, contract, job_spec, losses, state_of

# The codes that a client may get from a dying server.
GONE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DEADLINE_EXCEEDED)


class Broken(AssertionError):
    """The server broke a promise."""


class Promises(typing.NamedTuple):
    made: set  # jobs that must exist
    deleted: set
    cancelled: set
    ended: dict
    labels: dict


class Oracle:
    """Compares what the server shows with what it acknowledged. A call without an answer may have taken effect or not. Threads: all methods
    are thread-safe."""

    def __init__(self, want):
        self.lock = threading.Lock()
        self.want = want  # losses of an undisturbed job, by seed
        self.seeds = {}  # seed by job, for acknowledged jobs
        self.asked = {}  # seed by job, for jobs whose creation was requested
        self.ended = {}  # (state, end time, result) by job, as first seen
        self.cancelled = set()
        self.may_be_cancelled = set()
        self.deleted = set()
        self.may_be_deleted = set()
        self.died = set()  # jobs that failed because the server died too often; a retry resumes them
        self.labels = {}  # value by (job, key); None if a change of it was not answered
        self.calls = 0

    def promises(self):
        """Returns what must hold for every answer to a call that begins now."""
        with self.lock:
            return Promises(set(self.seeds) - self.may_be_deleted, set(self.deleted), set(self.cancelled), dict(self.ended), dict(self.labels))

    def see(self, job, promises):
        """Checks a job that the server showed after `promises` were taken."""
        name = job.name.removeprefix("jobs/")
        state = state_of(job)
        if name in promises.deleted:
            raise Broken(f"job {name} was deleted and is {state}")
        if name in promises.ended and state != promises.ended[name][0]:
            raise Broken(f"job {name} ended as {promises.ended[name][0]} and is {state}")
        # The job may have taken its last step before the cancel.
        if name in promises.cancelled and state not in ("CANCELLED", "CANCELLING", "SUCCEEDED"):
            raise Broken(f"the cancel of job {name} was answered, and it is {state}")
        with self.lock:
            for (of, key), value in promises.labels.items():
                # The user who owns the label may be changing it.
                if of == name and value is not None and self.labels[of, key] == value and job.labels.get(key) != value:
                    raise Broken(f"job {name} has label {key}={job.labels.get(key)!r} where {value!r} was answered")
            if name not in self.asked:
                raise Broken(f"job {name} was never asked for")
            # A job fails after five deaths at one step, so that it cannot kill every server forever.
            if state == "FAILED" and "the server died" in job.error:
                self.died.add(name)
                return
            if state in ENDED:
                end = (state, job.end_time.ToNanoseconds(), job.result.SerializeToString(deterministic=True))
                if self.ended.setdefault(name, end) != end:
                    raise Broken(f"job {name} ended as {self.ended[name][:2]} and now as {end[:2]}")
            if state == "FAILED":
                raise Broken(f"job {name} failed: {job.error}")
            if state == "CANCELLED" and name not in self.may_be_cancelled:
                raise Broken(f"job {name} is cancelled, which nobody asked for")
            if state == "SUCCEEDED" and job.epochs and losses(job) != self.want[self.asked[name]]:
                raise Broken(f"job {name} has other losses than one that nothing disturbed")

    def check_list(self, server):
        """Checks all jobs that the server lists. None may be lost."""
        promises = self.promises()
        jobs = server.list_jobs()
        for job in jobs:
            self.see(job, promises)
        lost = promises.made - {job.name.removeprefix("jobs/") for job in jobs}
        if lost:
            raise Broken(f"acknowledged jobs are lost: {sorted(lost)}")
        return jobs

    def unended(self):
        with self.lock:
            return [name for name in self.seeds if name not in self.ended and name not in self.may_be_deleted]


class User(threading.Thread):
    """Makes calls until the server is gone, and reports the answers to the oracle."""

    def __init__(self, server, oracle, key, seed):
        super().__init__(daemon=True)
        self.key = key  # the key of the labels that this user sets
        self.server, self.oracle, self.draw = server, oracle, random.Random(seed)
        self.broken = None
        self.picked = None

    def run(self):
        try:
            while True:
                try:
                    self.act()
                except grpc.RpcError as error:
                    # Another user may delete the job that this one has picked.
                    if error.code() != grpc.StatusCode.NOT_FOUND or self.picked not in self.oracle.may_be_deleted:
                        raise
                with self.oracle.lock:
                    self.oracle.calls += 1
        except grpc.RpcError as error:
            if error.code() not in GONE:
                self.broken = Broken(f"{error.code().name}: {error.details()}")
        except Broken as error:
            self.broken = error

    def act(self):
        act = self.draw.choices([self.create, self.cancel, self.label, self.delete, self.look], [8, 0.06, 2, 0.15, 10])[0]
        act()

    def create(self):
        made, oracle = contract(), self.oracle
        # Limits the waiting jobs, since the trial ends by running them all.
        if len(oracle.unended()) > 6:
            return self.look()
        name, seed = f"j{uuid.UUID(int=self.draw.getrandbits(128)).hex[:12]}", self.draw.choice(list(oracle.want))
        with oracle.lock:
            oracle.asked[name] = seed
        request = made.CreateJobRequest(job_id=name, spec=job_spec(seed=seed), request_id=name)
        self.server.jobs.CreateJob(request, timeout=30)
        with oracle.lock:
            oracle.seeds[name] = seed

    def pick(self, ended):
        with self.oracle.lock:
            names = [name for name in self.oracle.seeds if (name in self.oracle.ended) == ended and name not in self.oracle.may_be_deleted]
        self.picked = self.draw.choice(names) if names else None
        return self.picked

    def cancel(self):
        name = self.pick(ended=False)
        if name is None:
            return
        with self.oracle.lock:
            self.oracle.may_be_cancelled.add(name)
        try:
            self.server.jobs.CancelJob(contract().CancelJobRequest(name=f"jobs/{name}"), timeout=30)
        except grpc.RpcError as error:
            # The job succeeded a moment before.
            if error.code() != grpc.StatusCode.FAILED_PRECONDITION:
                raise
            return
        with self.oracle.lock:
            self.oracle.cancelled.add(name)

    def label(self):
        name = self.pick(ended=self.draw.random() < 0.5)
        if name is None:
            return
        value = str(self.draw.randrange(1000))
        with self.oracle.lock:
            self.oracle.labels[name, self.key] = None
        made = contract()
        self.server.jobs.UpdateJob(made.UpdateJobRequest(job=made.Job(name=f"jobs/{name}", labels={self.key: value}),
                                                         update_mask={"paths": [f"labels.{self.key}"]}), timeout=30)
        with self.oracle.lock:
            self.oracle.labels[name, self.key] = value

    def delete(self):
        name = self.pick(ended=True)
        if name is None:
            return
        with self.oracle.lock:
            self.oracle.may_be_deleted.add(name)
        self.server.jobs.DeleteJob(contract().DeleteJobRequest(name=f"jobs/{name}"), timeout=30)
        with self.oracle.lock:
            self.oracle.deleted.add(name)

    def look(self):
        name = self.pick(ended=self.draw.random() < 0.5)
        if name is not None:
            promises = self.oracle.promises()
            self.oracle.see(self.server.get(name), promises)


def settle(server, oracle, limit=240):
    """Checks that every acknowledged job runs to its end, with the bits of an undisturbed job."""
    oracle.check_list(server)
    for name in oracle.died:
        server.jobs.RetryJob(contract().RetryJobRequest(name=f"jobs/{name}"), timeout=30)
    for name in oracle.unended():
        oracle.see(server.await_end(name, limit), oracle.promises())
    jobs = oracle.check_list(server)
    for job in jobs:
        if state_of(job) == "SUCCEEDED":
            name = job.name.removeprefix("jobs/")
            seen = server.get(name)
            oracle.see(seen, oracle.promises())
            # Counts the ends in the job's history. The log's last line reaches the disk before the state does, and may occur twice.
            ends = sum(change.state == job.state for change in seen.state_changes)
            if ends != 1:
                raise Broken(f"{job.name} succeeded {ends} times")
            if not server.log_of(name).strip():
                raise Broken(f"the log of {job.name} is lost")
    return jobs
