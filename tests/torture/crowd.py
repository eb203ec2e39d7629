"""Tests many callers at once: equal requests, readers that do not read, hundreds of clients, one client that wants everything."""

import concurrent.futures
import statistics
import subprocess
import time

import grpc

from tests.torture.world import Server, contract, folder_of, job_spec, state_of, until, write_set

# The largest ratio of a job's training time with unread streams to its time without them.
MOST_RATIO = 1.02


def begin(bin_dir, folder, graphs=64):
    server = Server(bin_dir, folder).start()
    server.import_dataset("set", write_set(server.import_root / "set", graphs=graphs))
    return server


def duplicates(bin_dir, seed, count):
    """Tests that equal requests at the same time make one job."""
    made = contract()
    with folder_of("duplicates") as folder:
        server = begin(bin_dir, folder)
        request = made.CreateJobRequest(spec=job_spec(epochs=1, seed=seed), request_id="one-of-many")
        calls = [server.jobs.CreateJob.future(request, timeout=120) for _ in range(count)]
        names = {call.result().name for call in calls}
        jobs = server.list_jobs()
        assert len(names) == 1 and [job.name for job in jobs] == list(names), f"{names}, {len(jobs)} jobs"
        assert state_of(server.await_end(names.pop().removeprefix("jobs/"))) == "SUCCEEDED"
        assert server.stop() == 0
    return f"{count} equal requests at once: one job"


class Unread:
    """Log streams that are open and never read."""

    def __init__(self, server, job, count):
        made = contract()
        # Uses small windows, so that the server soon has to wait for the streams.
        self.channels = [grpc.insecure_channel(server.target, options=[("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0)])
                         for _ in range(8)]
        stubs = [made.JobServiceStub(channel) for channel in self.channels]
        self.streams = [stubs[i % 8].StreamJobLogs(made.StreamJobLogsRequest(name=f"jobs/{job}", follow=True)) for i in range(count)]

    def close(self):
        for stream in self.streams:
            stream.cancel()
        for channel in self.channels:
            channel.close()


def slow_readers(bin_dir, seed, count, pairs, graphs, epochs, held):
    """Tests how much slower a job trains while nobody reads its log from many streams, and what processor time the streams cost.

    The time compared is the one that a tenth of a job's epochs stay below. Other programs of a busy machine slow some epochs, but the
    streams slow all of them. The limit applies to the median of the pairs.
    held: whether the limit is asserted.
    """
    made = contract()
    ratios, works = [], []
    with folder_of("readers") as folder:
        server = begin(bin_dir, folder, graphs)
        for pair in range(pairs):
            seconds, cpu = {}, {}
            for readers in ((0, count) if pair % 2 else (count, 0)):
                name = f"j{pair}-{readers}"
                before = server.metrics()["process_cpu_seconds_total"]
                spec = job_spec(epochs=epochs, seed=seed, every_steps=10_000)
                server.jobs.CreateJob(made.CreateJobRequest(job_id=name, spec=spec), timeout=30)
                unread = Unread(server, name, readers)
                ended = server.await_end(name)
                assert state_of(ended) == "SUCCEEDED", ended.error
                seconds[readers] = statistics.quantiles([epoch.train_seconds for epoch in ended.epochs], n=10, method="inclusive")[0]
                cpu[readers] = server.metrics()["process_cpu_seconds_total"] - before
                unread.close()
            ratios.append(seconds[count] / seconds[0])
            works.append(cpu[count] / cpu[0])
        assert server.stop() == 0
    slower = statistics.median(ratios)
    assert slower <= MOST_RATIO or not held, f"{count} log streams that nobody reads: training takes {slower:.3f} of the time ({pairs} pairs)"
    return (f"{count} log streams that nobody reads: training takes {slower:.3f} of the time, the process "
            f"{statistics.median(works):.3f} of the CPU ({pairs} pairs)")


def clients(bin_dir, seed, count):
    """Tests many clients, each with its own connection and stream. One more is still served, and nothing of them remains."""
    made = contract()
    with folder_of("clients") as folder:
        server = begin(bin_dir, folder)
        server.jobs.CreateJob(made.CreateJobRequest(job_id="j", spec=job_spec(epochs=1, seed=seed)), timeout=30)
        server.await_end("j")
        before = open_files(server)
        channels = [grpc.insecure_channel(server.target, options=[("grpc.use_local_subchannel_pool", 1)]) for _ in range(count)]
        streams = [made.ServerServiceStub(channel).WatchServer(made.WatchServerRequest()) for channel in channels]
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            seen = list(pool.map(next, streams))
        assert all(info.state_dir == seen[0].state_dir for info in seen)
        assert open_files(server) >= before + count, "each has a connection"
        began = time.monotonic()
        server.get("j")
        took = time.monotonic() - began
        for stream in streams:
            stream.cancel()
        for channel in channels:
            channel.close()
        until(60, "the end of all connections", lambda: open_files(server) <= before + 8)
        assert server.stop() == 0
    return f"{count} clients with a stream each; GetJob beside them {took * 1000:.1f} ms; all closed"


def open_files(server):
    return len(subprocess.run(["ls", f"/proc/{server.process.pid}/fd"], check=True, stdout=subprocess.PIPE, text=True).stdout.split())


def greedy(bin_dir, seed, most):
    """Tests that one token takes at most three quarters of the watches, so that others are served."""
    made = contract()
    with folder_of("greedy") as folder:
        server = Server(bin_dir, folder, "--auth", "token").start()
        socket = grpc.insecure_channel(f"unix:{server.state_dir}/permafrost.sock")
        admin = made.ServerServiceStub(socket)
        secrets = [admin.CreateToken(made.CreateTokenRequest(token=made.Token(role=made.Token.ROLE_VIEWER, label=f"{name}-{seed}"))).secret
                   for name in ("greedy", "modest")]

        def watch(secret):
            return server.server.WatchServer(made.WatchServerRequest(), metadata=(("authorization", f"Bearer {secret}"),))

        taken = [watch(secrets[0]) for _ in range(most)]
        for stream in taken:
            next(stream)
        refused = watch(secrets[0])
        try:
            next(refused)
            raise AssertionError(f"a token has more than {most} watches")
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and f"{most} watches of tokens/" in error.details(), error.details()
        next(watch(secrets[1]))
        for stream in taken:
            stream.cancel()
        until(30, "room for the first one", lambda: is_served(watch(secrets[0])))
        socket.close()
        assert server.stop() == 0
    return f"{most} watches of one token, the next one refused, another token's served"


def is_served(stream):
    try:
        next(stream)
    except grpc.RpcError:
        return False
    stream.cancel()
    return True
