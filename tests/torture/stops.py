"""SIGTERM at random times: the daemon ends in time with code 0, and its job goes on as if nothing had been."""

import random
import time

from tests.torture.kills import undisturbed
from tests.torture.world import Server, contract, folder_of, job_spec, losses, state_of, write_set

# Kubernetes kills after 30.
LIMIT = 25
# So that most stops come in the midst of a job.
EPOCHS = 60


def stops(bin_dir, seed, count):
    draw = random.Random(seed)
    want = undisturbed(bin_dir, EPOCHS)
    made = contract()
    longest, stopped, finished = 0, 0, 0
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
                code = server.stop(LIMIT)
                longest = max(longest, time.monotonic() - began)
                stopped += 1
                assert code == 0, f"exit code {code}: {server.log()[-500:]}"
                server.start()
            ended = server.await_end(name)
            assert state_of(ended) == "SUCCEEDED" and losses(ended) == want[chosen], f"{name}: {ended.error}"
            finished += 1
        assert server.stop() == 0
    return f"{stopped} stops, the longest {longest:.2f} s, all with code 0; {finished} jobs with equal losses"
