"""Tests failing system calls, full disks and vanishing files: there is a clear line, and the daemon still serves."""

import errno
import random
import resource
import shutil
import socket
import subprocess
import time

import grpc

from tests.torture.kills import undisturbed
from tests.torture.world import LONG, NotRun, Server, contract, folder_of, job_spec, losses, state_of, until, write_set

# Maps what fails to a rule of faults.cc, the upper bound of its `{nth}`, which is drawn from 1, and the text that must be reported.
FAILURES = {
    "no room for a checkpoint": (f"write:/checkpoints/:{{nth}}:{errno.ENOSPC}:4", 30, "No space left on device"),
    "a checkpoint does not come to disk": (f"fsync:/checkpoints/:{{nth}}:{errno.EIO}:3", 20, "Input/output error"),
    "a checkpoint gets no name": (f"rename:/checkpoints/:{{nth}}:{errno.EIO}:2", 4, "Input/output error"),
    "a checkpoint's folder cannot be made": (f"mkdir:/checkpoints/:{{nth}}:{errno.EROFS}:2", 4, "Read-only file system"),
    "a write takes half": ("write:/checkpoints/:{nth}:short:5", 20, None),
    "no descriptor is left for a checkpoint": (f"open:/checkpoints/:{{nth}}:{errno.EMFILE}:3", 20, "Too many open files"),
    "an artifact cannot be linked": (f"link:/artifacts/:{{nth}}:{errno.ENOSPC}:1", 4, "No space left on device"),
    "a checkpoint goes before its artifact is linked": (f"link:/artifacts/:{{nth}}:{errno.ENOENT}:1", 4, "No such file or directory"),
    "a job's log cannot be opened": (f"open:/log:{{nth}}:{errno.EMFILE}:1", 3, None),
    "the dataset cannot be mapped": (f"mmap:graphs.pfg:{{nth}}:{errno.ENOMEM}:1", 2, None),
    "no room for the database": (f"write:permafrost.db-wal:{{nth}}:{errno.ENOSPC}:3", 40, None),
    "the database does not come to disk": (f"fsync:permafrost.db-wal:{{nth}}:{errno.EIO}:2", 20, None),
    "no memory for a step": (f"allocate:10000:{{nth}}:{errno.ENOMEM}:1", 20, "out of device memory: cannot allocate"),
}
# This failure ends the job, which would otherwise be tried forever on a machine that is too small. RetryJob goes on from its checkpoint.
FAILS_THE_JOB = "no memory for a step"
# Codes of calls that were not acknowledged, and may be tried again.
NOT_NOW = (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL)


def persist(call, request):
    """Repeats a call until it is acknowledged, as a client does after a full disk. Returns how often it was refused."""
    for refused in range(100):
        try:
            call(request, timeout=30)
            return refused
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.ALREADY_EXISTS and refused:
                return refused
            assert error.code() in NOT_NOW and error.details(), f"{error.code().name}: {error.details()}"
            time.sleep(0.05)  # the daemon's own retries come after a second
    raise AssertionError("a call is refused for ever")


def failures(bin_dir, seed, count):
    """Tests that a job ends as if undisturbed after each temporary failure; for FAILS_THE_JOB, after a retry."""
    draw = random.Random(seed)
    want = undisturbed(bin_dir)[1]
    made = contract()
    met, tries = dict.fromkeys(FAILURES, 0), 0
    for name, (rule, most, line) in FAILURES.items():
        with folder_of("failure") as folder:
            source = write_set(folder / "root" / "set")
            server = Server(bin_dir, folder).start()
            server.import_dataset("set", source)
            assert server.stop() == 0
            for i in range(count):
                tries += 1
                (folder / "faults").unlink(missing_ok=True)
                server.start([rule.format(nth=1 + draw.randrange(most))])
                persist(server.jobs.CreateJob, made.CreateJobRequest(job_id=f"j{i}", spec=job_spec(), request_id=f"r{i}"))
                ended = server.await_end(f"j{i}")
                if name == FAILS_THE_JOB and state_of(ended) == "FAILED":
                    assert line in ended.error, ended.error
                    server.jobs.RetryJob(made.RetryJobRequest(name=f"jobs/j{i}"), timeout=30)
                    ended = server.await_end(f"j{i}")
                assert state_of(ended) == "SUCCEEDED", f"{name}: {ended.error}"
                assert losses(ended) == want, name
                if (folder / "faults").exists():
                    met[name] += 1
                    log = server.log_of(f"j{i}")
                    assert line is None or line in log, f"{name}: the job's log does not say so:\n{log}"
                assert server.stop() == 0, server.log()[-500:]
    assert any(met.values()), "nothing failed: the faults are not loaded"
    never = [name for name, times in met.items() if times == 0]
    assert not never or count < 5, f"never met: {never}"
    return f"{len(FAILURES)} failures, met in {sum(met.values())} of {tries} runs; all jobs ended with equal losses"


def read_only(bin_dir, seed):
    """Tests a state directory that is read-only for a while: calls are refused with the reason and later served, and no job is lost."""
    made = contract()
    want = undisturbed(bin_dir, LONG, (1,))[1]
    line = "Read-only file system"
    with folder_of("read-only") as folder:
        server = Server(bin_dir, folder)
        # Affects only the state directory, since a wake-up within the process is also a write.
        server.start([f"{call}:/state/:1:while-{errno.EROFS}:0" for call in ("write", "fsync", "mkdir", "rename", "link", "unlink", "ftruncate")])
        server.import_dataset("set", write_set(server.import_root / "set"))
        spec = job_spec(epochs=LONG, seed=1)
        server.jobs.CreateJob(made.CreateJobRequest(job_id="j", spec=spec), timeout=30)
        until(60, "a checkpoint", lambda: server.get("j").progress.checkpoint_step > 0)
        (folder / "stall").touch()
        refused = []
        for i in range(5):
            try:
                server.jobs.CreateJob(made.CreateJobRequest(job_id=f"k{i}", spec=spec), timeout=30)
                raise AssertionError("a job was acknowledged that nothing keeps")
            except grpc.RpcError as error:
                assert error.code() == grpc.StatusCode.UNAVAILABLE and line in error.details(), f"{error.code().name}: {error.details()}"
                refused.append(error.details())
        for what, ask in (("a job", lambda: server.get("j")), ("a list", lambda: server.list_jobs()[0])):
            told = until(60, f"{what} that says so", lambda ask=ask: (lambda job: job.last_error if line in job.last_error else "")(ask()))
        denied = sum(value for name, value in server.metrics().items() if 'code="PERMISSION_DENIED"' in name)
        assert denied == 0, "an alert counts these: nobody was denied anything"
        (folder / "stall").unlink()
        ended = server.await_end("j")
        assert state_of(ended) == "SUCCEEDED" and losses(ended) == want and not ended.last_error, f"{ended.error}{ended.last_error}"
        server.jobs.CreateJob(made.CreateJobRequest(job_id=f"after-{seed}", spec=job_spec(epochs=1)), timeout=30)
        assert state_of(server.await_end(f"after-{seed}")) == "SUCCEEDED"
        assert server.stop() == 0
    return f"{len(refused)} jobs refused ({refused[0][-60:]!r}); the one that ran waited ({told[-60:]!r}) and ended with equal losses"


def full_disk(bin_dir, _, megabytes):
    """Tests a full file system: due work waits, records stay, and everything goes on when there is room."""
    made = contract()
    want = undisturbed(bin_dir)[1]
    with folder_of("disk") as folder:
        small = folder / "small"
        small.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", small], stderr=subprocess.PIPE, text=True)
        if mounted.returncode != 0:
            raise NotRun(mounted.stderr.strip())
        try:
            server = Server(bin_dir, small, "--min-free-disk", "8MiB").start()
            server.import_dataset("set", write_set(server.import_root / "set"))
            ballast = small / "ballast"
            with open(ballast, "wb") as file:
                file.write(b"\0" * (shutil.disk_usage(small).free - (4 << 20)))
            server.jobs.CreateJob(made.CreateJobRequest(job_id="j", spec=job_spec(seed=1, every_steps=2)), timeout=30)
            until(60, "a checkpoint that waits", lambda: "nearly full" in server.get("j").last_error or state_of(server.get("j")) == "SUCCEEDED")
            assert "nearly full" in server.log_of("j"), "it must be told"
            server.datasets.ImportDataset(made.ImportDatasetRequest(
                dataset_id="other", options=made.ImportOptions(source_path=str(server.import_root / "set"))), timeout=30)
            seen = until(30, "an import that waits", lambda: (lambda d: d if d.last_error else None)(
                server.datasets.GetDataset(made.GetDatasetRequest(name="datasets/other"), timeout=30)))
            assert "nearly full" in seen.last_error, seen.last_error
            ballast.unlink()
            assert server.await_dataset("other").state == made.Dataset.STATE_READY
            ended = server.await_end("j")
            assert state_of(ended) == "SUCCEEDED" and losses(ended) == want, ended.error
            # Fills the disk to the last byte, beyond the reserve. Jobs on record stay, and the daemon lives.
            with open(ballast, "wb") as file:
                try:
                    while True:
                        file.write(b"\0" * (1 << 20))
                        file.flush()
                except OSError:
                    pass
            refused = 0
            for i in range(50):
                try:
                    server.jobs.CreateJob(made.CreateJobRequest(job_id=f"k{i}", spec=job_spec(seed=1)), timeout=30)
                except grpc.RpcError as error:
                    assert error.code() in NOT_NOW, f"{error.code().name}: {error.details()}"
                    refused += 1
            acknowledged = {job.name for job in server.list_jobs()}
            server.kill()
            ballast.unlink(missing_ok=True)
            server.start()
            assert acknowledged <= {job.name for job in server.list_jobs()}, "acknowledged jobs are lost"
            for name in acknowledged:
                assert state_of(server.await_end(name.removeprefix("jobs/"))) == "SUCCEEDED"
            assert server.stop() == 0
        finally:
            if server.running():
                server.kill()
            subprocess.run(["umount", small], check=True)
    return f"{megabytes} MiB: a checkpoint and an import waited; with none left {refused} of 50 jobs were refused, the others ran"


def vanished_files(bin_dir, seed):
    """Tests a dataset that vanishes or changes under a queued job, and a checkpoint folder that vanishes under a running one."""
    made = contract()
    with folder_of("vanished") as folder:
        server = Server(bin_dir, folder).start()
        for name in ("set", "gone", "changed"):
            server.import_dataset(name, write_set(server.import_root / name, seed=seed))
        # Far more epochs than it has time for.
        spec = job_spec(epochs=100000)
        server.jobs.CreateJob(made.CreateJobRequest(job_id="runs", spec=spec), timeout=30)
        for name in ("gone", "changed"):
            server.jobs.CreateJob(made.CreateJobRequest(job_id=name, spec=job_spec(dataset=name)), timeout=30)
        shutil.rmtree(server.state_dir / "datasets/gone")
        path = server.state_dir / "datasets/changed/graphs.pfg"
        data = bytearray(path.read_bytes())
        data[len(data) // 2:] = bytes(len(data) - len(data) // 2)
        path.write_bytes(data)
        checkpoints = server.state_dir / "jobs/runs/checkpoints"
        until(60, "a checkpoint", lambda: server.get("runs").progress.checkpoint_step > 0)
        shutil.rmtree(checkpoints, ignore_errors=True)
        step = server.get("runs").progress.step

        def saved_again():
            seen = server.get("runs")
            assert state_of(seen) not in ("FAILED", "SUCCEEDED"), f"job runs: {state_of(seen)}: {seen.error}"
            return seen.progress.checkpoint_step > step and checkpoints.exists()

        until(60, "a checkpoint in a new folder", saved_again)
        server.jobs.CancelJob(made.CancelJobRequest(name="jobs/runs"), timeout=30)
        server.await_end("runs")
        lines = []
        for name in ("gone", "changed"):
            def told(name=name):
                seen = server.get(name)
                return seen if state_of(seen) == "FAILED" or seen.last_error else None

            seen = until(60, f"the end of job {name}", told)
            lines.append(seen.error or seen.last_error)
        server.jobs.CreateJob(made.CreateJobRequest(job_id="after", spec=job_spec()), timeout=30)
        assert state_of(server.await_end("after")) == "SUCCEEDED"
        for name in ("gone", "changed"):
            if state_of(server.get(name)) not in ("FAILED",):
                server.jobs.CancelJob(made.CancelJobRequest(name=f"jobs/{name}"), timeout=30)
        assert server.stop() == 0
    return f"told: {lines[0][:90]!r}, {lines[1][:90]!r}; a job after them ran"


def taken_port(bin_dir, seed):
    """Tests a port that another process has: one line and exit code 1, and jobs wait unharmed."""
    made = contract()
    with folder_of("port") as folder, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = Server(bin_dir, folder).start()
        server.import_dataset("set", write_set(server.import_root / "set", seed=seed))
        server.jobs.CreateJob(made.CreateJobRequest(job_id="j", spec=job_spec(epochs=100000)), timeout=30)
        assert server.stop() == 0
        before = len(server.log())
        for flag in ("--listen", "--metrics"):
            other = Server(bin_dir, folder, flag, f"127.0.0.1:{port}")
            other.launch()
            assert not other.await_ready() and other.process.returncode == 1
        lines = server.log()[before:].splitlines()
        assert sum("in use" in line for line in lines) == 2, lines
        server.start()
        assert state_of(server.get("j")) in ("QUEUED", "RUNNING", "PREPARING", "WARMING_UP", "RECOVERING")
        server.jobs.CancelJob(made.CancelJobRequest(name="jobs/j"), timeout=30)
        server.await_end("j")
        assert server.stop() == 0
    return "gRPC's and Prometheus' port taken: a line each, exit code 1"


def few_descriptors(bin_dir, seed, most):
    """Tests connections that take all descriptors: the job trains on, and once they close, every client is served again."""
    made = contract()
    with folder_of("descriptors") as folder:
        server = Server(bin_dir, folder)
        server.start(prepare=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most)))
        server.import_dataset("set", write_set(server.import_root / "set", seed=seed))
        server.jobs.CreateJob(made.CreateJobRequest(job_id="j", spec=job_spec(epochs=1000)), timeout=30)
        host, port = server.target.rsplit(":", 1)
        sockets = []
        for _ in range(2 * most):
            sockets.append(socket.create_connection((host, int(port)), timeout=10))
        # New clients now wait, and connected ones are served. The job retries what it needs a file for.
        line = until(60, "a job that says so", lambda: (lambda told: told if "Too many open files" in told else "")(server.get("j").last_error))
        assert server.running()
        for one in sockets:
            one.close()
        until(60, "an answer", lambda: answers(server))
        ended = server.await_end("j")
        assert state_of(ended) == "SUCCEEDED" and not ended.last_error, f"{ended.error}{ended.last_error}"
        assert server.stop() == 0
    return f"{2 * most} connections where {most} files may be open: {line[-60:]!r}; the job ended, and the server answered after them"


def answers(server):
    try:
        server.get("j")
    except grpc.RpcError:
        return False
    return True


def clock(bin_dir, seed):
    """Tests a wall clock that is set back by an hour in the middle of a job, and forward again."""
    made = contract()
    want = undisturbed(bin_dir)[1]
    with folder_of("clock") as folder:
        server = Server(bin_dir, folder)
        server.start(["clock::1:1"])
        server.import_dataset("set", write_set(server.import_root / "set"))
        back = folder / "stall"
        for i in range(3):
            back.touch()
            server.jobs.CreateJob(made.CreateJobRequest(job_id=f"j{i}", spec=job_spec(seed=1)), timeout=30)
            if i % 2:
                back.unlink()
            ended = server.await_end(f"j{i}")
            assert state_of(ended) == "SUCCEEDED" and losses(ended) == want, ended.error
            back.unlink(missing_ok=True)
        listed = server.list_jobs()
        assert time.time() - listed[-1].create_time.seconds > 3000, "the clock was not set back: the faults are not loaded"
        names = [job.name for job in listed]
        assert names == ["jobs/j2", "jobs/j1", "jobs/j0"], f"the newest first, by age and not by the clock: {names}"
        assert server.stop() == 0
    return f"an hour back and forth under {len(names)} jobs with equal losses (seed {seed})"
