"""Tests SIGTERM at random times. The daemon reports at once that it no longer serves, and ends in time with code 0. Its job goes
on as if undisturbed."""

import random
import signal
import time

import grpc

from tests.torture.kills import undisturbed
from tests.torture.world import Server, contract, folder_of, job_spec, losses, state_of, write_set

# In seconds. Kubernetes kills after 30.
LIMIT = 25
# Seconds after SIGTERM within which Health/Check must no longer say SERVING.
MOST_SERVING = 0.1
# Enough epochs that most stops come in the middle of a job.
EPOCHS = 60


# Messages of grpc.health.v1 with status 1 and status 2.
SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"


def serves_until(server, began):
    """Calls Health/Check without a pause until it no longer says SERVING. Returns the seconds since `began`, and whether it said
    NOT_SERVING."""
    check = server.channel.unary_unary("/grpc.health.v1.Health/Check")
    while time.monotonic() - began < LIMIT:
        try:
            answer = check(b"", timeout=LIMIT)
        except grpc.RpcError as error:
            # The call came after the last connection was closed.
            assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED), f"{error.code().name}: {error.details()}"
            return time.monotonic() - began, False
        if answer != SERVING:
            assert answer == NOT_SERVING, answer
            return time.monotonic() - began, True
    raise AssertionError(f"Health/Check still said SERVING {LIMIT} s after SIGTERM")


def stops(bin_dir, seed, count):
    draw = random.Random(seed)
    want = undisturbed(bin_dir, EPOCHS)
    made = contract()
    longest, longest_serving, told, stopped, finished = 0, 0, 0, 0, 0
    with folder_of("stops") as folder:
        server = Server(bin_dir, folder).start()
        server.import_dataset("set", write_set(server.import_root / "set"))
        while stopped < count:
            name = f"j{finished}"
            chosen = draw.choice(list(want))
            server.jobs.CreateJob(made.CreateJobRequest(job_id=name, spec=job_spec(epochs=EPOCHS, seed=chosen)), timeout=30)
            while stopped < count:
                time.sleep(draw.random() * 0.8)
                if state_of(server.get(name)) == "SUCCEEDED":
                    break
                began = time.monotonic()
                server.process.send_signal(signal.SIGTERM)
                serving, said = serves_until(server, began)
                code = server.process.wait(timeout=LIMIT)
                server.close()
                told += said
                longest_serving = max(longest_serving, serving)
                longest = max(longest, time.monotonic() - began)
                stopped += 1
                assert code == 0, f"exit code {code}: {server.log()[-500:]}"
                server.start()
            ended = server.await_end(name)
            assert state_of(ended) == "SUCCEEDED" and losses(ended) == want[chosen], f"{name}: {ended.error}"
            finished += 1
        assert server.stop() == 0
    # In a few stops, the connection may always close first, and one of them may meet a busy machine.
    assert told or count < 20, "Health/Check never said NOT_SERVING"
    assert longest_serving < MOST_SERVING or count < 20, f"Health/Check said SERVING {longest_serving * 1e3:.0f} ms after SIGTERM"
    return (f"{stopped} stops, the longest {longest:.2f} s, all with code 0; Health/Check no longer said SERVING {longest_serving * 1e3:.0f} ms after "
            f"SIGTERM at the latest ({told} times NOT_SERVING, else the connection had closed); {finished} jobs with equal losses")
