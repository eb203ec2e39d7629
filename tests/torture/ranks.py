"""Tests one job on several daemons whose processes are killed, and whose network is slow, cut or half open."""

import contextlib
import random
import re
import socket
import time

from tests.torture.network import PREFIX, Network
from tests.torture.world import (
    Server,
    contract,
    folder_of,
    job_spec,
    losses,
    state_of,
    until,
    write_set,
)

PORT = 7433
# The longest wait for the next step after a kill, in seconds, as the project promises.
LONGEST_WAIT = 10


def spec(epochs, replicas=3, hidden=8):
    made = job_spec(epochs=epochs, replicas=replicas, every_steps=10)
    made.batch_size = 24
    made.model.hidden_channels = hidden
    return made


def submit(leader, job, job_spec):
    leader.jobs.CreateJob(contract().CreateJobRequest(job_id=job, spec=job_spec), timeout=30)


def succeeded(leader, job, limit=300):
    ended = leader.await_end(job, limit)
    assert state_of(ended) == "SUCCEEDED", f"{job}: {ended.error}\n{leader.log_of(job)[-3000:]}"
    return ended


def await_log(leader, job, text, limit=60):
    try:
        until(limit, f"{text!r} in the log of {job}", lambda: text in leader.log_of(job))
    except RuntimeError as error:
        raise RuntimeError(f"{error}:\n{leader.log_of(job)[-3000:]}") from None


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def goes_on(job, before):
    """Returns True once the job has trained past the step `before`, or to its end."""
    state = state_of(job)
    assert state not in ("FAILED", "CANCELLED"), job.error
    return state == "SUCCEEDED" or job.progress.step > before


@contextlib.contextmanager
def ended(servers):
    try:
        yield
    finally:
        for server in servers:
            if server.running():
                server.kill()


def kills(bin_dir, seed, count, bounded):
    """Kills a random daemon of three, `count` times. bounded: no wait for the next step may exceed LONGEST_WAIT."""
    draw = random.Random(seed)
    with folder_of("ranks") as folder:
        ports = [free_port() for _ in range(3)]
        addresses = [f"127.0.0.1:{port}" for port in ports]
        servers = [Server(bin_dir, folder / name, "--listen", address, "--threads", "1") for name, address in zip("abc", addresses, strict=True)]
        leader = servers[0]
        leader.flags += ("--peers", ",".join(addresses[1:]), "--peer-timeout", "5")
        with ended(servers):
            for server in servers:
                server.start()
            leader.import_dataset("set", write_set(leader.import_root / "set", graphs=240))
            submit(leader, "calm", spec(epochs=200))
            calm = succeeded(leader, "calm")
            # A job of 200 epochs is over in seconds, so one job follows another until `count` kills are done.
            epochs = 200
            waits, rounds = [], 0
            while len(waits) < count:
                rounds += 1
                job = f"killed{rounds}"
                submit(leader, job, spec(epochs))
                while len(waits) < count:
                    time.sleep(draw.uniform(0.3, 1.5))
                    if state_of(leader.get(job)) != "RUNNING":
                        break
                    victim = draw.choice(servers)
                    victim.kill()
                    began = time.monotonic()
                    # A step in progress may still end. A killed leader reports its progress once it is back.
                    if victim is not leader:
                        before = leader.get(job).progress.step + 1
                    victim.start()
                    if victim is leader:
                        before = leader.get(job).progress.step
                    until(60, f"the next step of {job}", lambda job=job, before=before: goes_on(leader.get(job), before))
                    waits.append(time.monotonic() - began)
                assert losses(succeeded(leader, job)) == losses(calm), f"{job} has other losses than an undisturbed one"
        assert not bounded or max(waits) < LONGEST_WAIT, waits
        return f"{len(waits)} kills in {rounds} jobs, each with the losses of an undisturbed one; longest wait {max(waits):.1f} s"


def links(bin_dir, seed, every):
    """Tests slow, narrow and cut links, and a firewall. every: also tests a link that is cut in both directions."""
    del seed  # nothing is drawn
    with Network() as network, folder_of("links") as folder:
        peers = [f"{PREFIX}{host}:{PORT}" for host in (2, 3)]
        servers = [
            Server(
                bin_dir,
                folder / name,
                "--listen",
                f"{PREFIX}{host}:{PORT}",
                "--insecure",
                "--auth",
                "none",
                "--threads",
                "1",
            )
            for host, name in enumerate("abc", 1)
        ]
        leader = servers[0]
        leader.flags += ("--peers", ",".join(peers), "--peer-timeout", "2")
        with ended(servers):
            for host, server in enumerate(servers, 1):
                network.launch(server, host)
            leader.import_dataset("set", write_set(leader.import_root / "set", graphs=240))
            submit(leader, "plain", spec(epochs=1))
            plain = succeeded(leader, "plain")

            def equal(job):
                assert losses(succeeded(leader, job)) == losses(plain), f"{job} has other losses than over a sound network"
                progress = leader.get(job).progress
                return 1000 * progress.exchange.seconds / progress.step

            network.delay = 0.05
            submit(leader, "late", spec(epochs=1))
            late = equal("late")
            assert late > 50, f"an exchange took {late} ms a step, and each message is 50 ms late"
            network.delay, network.rate = 0.0, 100e6 / 8
            submit(leader, "narrow", spec(epochs=1))
            narrow = equal("narrow")
            network.rate = float("inf")

            submit(leader, "calm", spec(epochs=30))
            calm = succeeded(leader, "calm")
            last = f"{PREFIX}3"
            cuts = {
                "half": lambda source, target, port: source != last,
                "cut": lambda source, target, port: last not in (source, target),
            }
            for job, passes in cuts.items() if every else [("half", cuts["half"])]:
                submit(leader, job, spec(epochs=30))
                until(60, "a step", lambda job=job: leader.get(job).progress.step > 20)
                network.passes = passes
                # gRPC finds a cut within an evaluation.
                await_log(leader, job, "goes on from its newest checkpoint")
                # The log may name a rank that waits for the one that is cut off.
                rank = re.escape(PREFIX) + "[23]"
                told = re.search(rf"(rank [12] \({rank}\)|{rank}:{PORT}: )[^\n]*goes on from its newest", leader.log_of(job))
                assert told, f"the rank is not named:\n{leader.log_of(job)[-3000:]}"
                # The job needs three daemons, so it waits.
                await_log(leader, job, "the job wants 2 other daemons, and 1 joins")
                network.passes = lambda source, target, port: True
                assert losses(succeeded(leader, job)) == losses(calm), f"{job}: other losses than over a sound network"
            # gRPC and the leader's packets pass; the other two ranks cannot reach each other.
            network.passes = lambda source, target, port: port == PORT or source.endswith(".1") or target.endswith(".1")
            submit(leader, "blocked", spec(epochs=1))
            await_log(leader, "blocked", "does a firewall block it?", limit=120)
            assert re.search(r"rank \d[^\n]*(port \d+|:\d+: )[^\n]*firewall", leader.log_of("blocked")), "no rank and port are named"
            network.passes = lambda source, target, port: True
            assert losses(succeeded(leader, "blocked", limit=600)) == losses(plain)
            exchanges = f"an exchange takes {late:.0f} ms a step where each message is 50 ms late, {narrow:.1f} ms at 100 Mbit/s"
            return f"{exchanges}; cuts and a firewall are told"
