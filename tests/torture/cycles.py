"""Tests that nothing remains on disk or in memory after many rounds of import, training and deletion."""

from tests.torture.world import Server, contract, folder_of, job_spec, state_of, until, write_set

# The most growth, relative to the memory after the tenth cycle.
MOST_GROWTH = 0.05


def files_of(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def cycles(bin_dir, seed, count):
    made = contract()
    tenth = 0
    with folder_of("cycles") as folder:
        server = Server(bin_dir, folder).start()
        source = write_set(server.import_root / "set")
        empty = files_of(server.state_dir)
        for cycle in range(count):
            dataset = server.import_dataset("set", source)
            assert dataset.state == made.Dataset.STATE_READY, dataset.error
            server.jobs.CreateJob(made.CreateJobRequest(job_id="j", spec=job_spec(epochs=2, seed=seed + cycle)), timeout=30)
            ended = server.await_end("j")
            assert state_of(ended) == "SUCCEEDED", ended.error
            server.jobs.DeleteJob(made.DeleteJobRequest(name="jobs/j"), timeout=30)
            server.datasets.DeleteDataset(made.DeleteDatasetRequest(name="datasets/set"), timeout=30)
            if cycle == 9:
                tenth = server.resident_bytes()
        last = server.resident_bytes()
        stay = {name for name in files_of(server.state_dir) - empty if not name.startswith(("plans/", "audit.jsonl", "permafrost.db"))}
        assert not stay, f"files that stay: {sorted(stay)[:5]}"
        # A short trial proves nothing about memory.
        growth = last / tenth - 1 if tenth else 0
        assert growth <= MOST_GROWTH or count < 50, f"memory grew by {growth:.1%} from the tenth cycle on"
        until(10, "no open dataset", lambda: server.metrics().get("permafrost_dataset_mapped_bytes", 0) == 0)
        assert server.stop() == 0
    return f"{count} cycles: {last / 1e6:.0f} MB, {growth:+.1%} since the tenth; no file stays"
