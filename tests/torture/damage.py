"""Tests bytes that change on disk: each damaged checkpoint is found, and the one before it is used."""

import random
import shutil
import sqlite3

import grpc

from tests.torture.kills import undisturbed
from tests.torture.world import LONG, Server, contract, folder_of, job_spec, losses, state_of, until, write_set

PAGE = 4096


def two_checkpoints(bin_dir, folder, seed):
    """Returns a stopped server whose job has two complete checkpoints, and their folders, newest first."""
    made = contract()
    server = Server(bin_dir, folder).start()
    server.import_dataset("set", write_set(server.import_root / "set"))
    server.jobs.CreateJob(made.CreateJobRequest(job_id="j", spec=job_spec(epochs=LONG, seed=seed)), timeout=30)
    until(60, "two checkpoints", lambda: server.get("j").progress.checkpoint_step >= 10)
    server.jobs.PauseJob(made.PauseJobRequest(name="jobs/j"), timeout=30)
    until(60, "the pause", lambda: state_of(server.get("j")) in ("PAUSED", "SUCCEEDED"))
    folders = sorted((path for path in (server.state_dir / "jobs/j/checkpoints").iterdir() if path.name.isdigit()),
                     key=lambda path: -int(path.name))
    return server, folders


def states(server):
    """Returns the step and state of each checkpoint, newest first, with every byte read."""
    made = contract()
    found = server.jobs.ListCheckpoints(made.ListCheckpointsRequest(parent="jobs/j", verify=True), timeout=60).checkpoints
    return [(checkpoint.step, checkpoint.state) for checkpoint in found]


def checkpoints(bin_dir, seed, flips, resumes):
    made = contract()
    draw = random.Random(seed)
    cuts = 0
    with folder_of("damage") as folder:
        server, folders = two_checkpoints(bin_dir, folder, seed=1)
        assert state_of(server.get("j")) == "PAUSED" and len(folders) == 2, "the job ended too soon"
        steps = [int(path.name) for path in folders]
        complete, damaged = made.Checkpoint.STATE_COMPLETE, made.Checkpoint.STATE_DAMAGED
        assert states(server) == [(step, complete) for step in steps]
        files = sorted(path for path in folders[0].iterdir() if path.is_file())
        for path in files:
            whole = path.read_bytes()
            for size in range(0, len(whole), PAGE):
                path.write_bytes(whole[:size])
                assert states(server) == [(steps[0], damaged), (steps[1], complete)], f"{path.name} cut at {size}"
                cuts += 1
            path.write_bytes(whole)
        for _ in range(flips):
            path = draw.choice(files)
            whole = path.read_bytes()
            at, bit = draw.randrange(len(whole)), draw.randrange(8)
            path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << bit)]) + whole[at + 1:])
            assert states(server) == [(steps[0], damaged), (steps[1], complete)], f"{path.name}, bit {bit} of byte {at}"
            path.write_bytes(whole)
        assert states(server) == [(step, complete) for step in steps], "as it was"
        assert server.stop() == 0
        want = undisturbed(bin_dir, LONG, (1,))[1]
        saved = folder / "saved"
        shutil.copytree(server.state_dir, saved, ignore=shutil.ignore_patterns("*.sock"))
        for _ in range(resumes):
            shutil.rmtree(server.state_dir)
            shutil.copytree(saved, server.state_dir)
            path = draw.choice(files)
            whole = path.read_bytes()
            path.write_bytes(whole[:draw.randrange(len(whole))])
            server.start()
            server.jobs.ResumeJob(made.ResumeJobRequest(name="jobs/j"), timeout=30)
            ended = server.await_end("j")
            assert state_of(ended) == "SUCCEEDED" and losses(ended) == want, ended.error
            assert f"checkpoint of step {steps[1]}" in server.log_of("j"), "the earlier one must have served"
            assert server.stop() == 0
    return f"{cuts} cuts and {flips} flipped bits, all found; {resumes} jobs went on from the checkpoint before, with equal losses"


def rows(bin_dir, seed):
    """Tests that an unreadable row of the database costs only its own job."""
    made = contract()
    with folder_of("rows") as folder:
        server = Server(bin_dir, folder).start()
        server.import_dataset("set", write_set(server.import_root / "set"))
        for name in ("a", "b"):
            server.jobs.CreateJob(made.CreateJobRequest(job_id=name, spec=job_spec(seed=seed)), timeout=30)
        assert server.stop() == 0
        with sqlite3.connect(server.state_dir / "permafrost.db") as database:
            assert database.execute("UPDATE jobs SET spec = '{' WHERE id = 'a'").rowcount == 1
        database.close()
        server.start()
        assert state_of(server.get("a")) == "FAILED" and server.get("a").error
        assert state_of(server.await_end("b")) == "SUCCEEDED"
        assert server.stop() == 0
    return "a row that is no job: told as one that failed; the other job ran"


def verify(server):
    try:
        list(server.datasets.VerifyDataset(contract().VerifyDatasetRequest(name="datasets/set"), timeout=60))
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.DATA_LOSS, f"{error.code().name}: {error.details()}"
        return "found when it was verified"
    return "found to be harmless"


def stores(bin_dir, seed, count):
    """Tests that a dataset with a damaged file is reported, and that the daemon still serves."""
    made = contract()
    draw = random.Random(seed)
    outcomes = {}
    with folder_of("stores") as folder:
        server = Server(bin_dir, folder).start()
        server.import_dataset("set", write_set(server.import_root / "set"))
        assert server.stop() == 0
        path = server.state_dir / "datasets/set/graphs.pfg"
        whole = path.read_bytes()
        for i in range(count):
            cut = draw.random() < 0.3
            at = draw.randrange(len(whole)) if draw.random() < 0.5 else draw.randrange(min(1024, len(whole)))
            path.write_bytes(whole[:at] if cut else whole[:at] + bytes([whole[at] ^ (1 << draw.randrange(8))]) + whole[at + 1:])
            server.start()
            dataset = server.datasets.GetDataset(made.GetDatasetRequest(name="datasets/set"), timeout=30)
            if dataset.state == made.Dataset.STATE_READY:
                outcome = verify(server)
                server.jobs.CreateJob(made.CreateJobRequest(job_id=f"j{i}", spec=job_spec(epochs=1)), timeout=30)
                ended = server.await_end(f"j{i}")
                assert state_of(ended) == "SUCCEEDED" or ended.error
            else:
                assert dataset.error
                outcome = "found at the start"
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
            assert server.stop() == 0, server.log()[-500:]
            path.write_bytes(whole)
    return f"{count} damaged stores: " + ", ".join(f"{times} {outcome}" for outcome, times in sorted(outcomes.items()))
