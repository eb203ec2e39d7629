"""Tests a long job over far more shapes than a cache could hold: entries and memory stay constant."""

import time

from tests.torture.world import Server, contract, folder_of, job_spec, state_of, write_set

MOST_SLOPE = 1e6  # bytes each 10,000 steps
# The graphs of a batch in job_spec, and the part of an import's graphs that is trained on.
BATCH, TRAINED = 8, 0.8


def slope(points):
    """Returns the slope of the least-squares line through (step, bytes), in bytes each 10,000 steps. Returns 0 for fewer than two
    points."""
    if len(points) < 2:
        return 0.0
    steps = sum(step for step, _ in points) / len(points)
    size = sum(value for _, value in points) / len(points)
    return 1e4 * sum((s - steps) * (v - size) for s, v in points) / sum((s - steps) ** 2 for s, _ in points)


def soak(bin_dir, seed, steps, graphs, shapes):
    """Tests `steps` steps or a few more under each policy, of batches in at least `shapes` shapes."""
    made = contract()
    told = []
    # The whole schedule runs, so that every planned shape is trained on.
    epochs = -(-steps * BATCH // int(graphs * TRAINED))
    with folder_of("soak") as folder:
        server = Server(bin_dir, folder).start()
        server.import_dataset("set", write_set(server.import_root / "set", graphs=graphs, nodes=8, spread=60, links=(1, 3)), limit=300)
        # Tests the policy of pyg-team/pytorch_geometric#10689, and one dynamic executable.
        for name, kept in (("freeze", made.GraphCachePolicy.SHAPES_EXACT), ("dynamic", made.GraphCachePolicy.SHAPES_DYNAMIC)):
            spec = job_spec(epochs=epochs, seed=seed, every_steps=max(steps // 10, 5))
            spec.graph_cache.policy = made.GraphCachePolicy.POLICY_FREEZE
            spec.graph_cache.shapes = kept
            server.jobs.CreateJob(made.CreateJobRequest(job_id=name, spec=spec), timeout=30)
            points, entries = [], set()
            while True:
                seen = server.get(name)
                assert state_of(seen) != "FAILED", f"{name}: {seen.error}"
                cache = server.caches.GetGraphCache(made.GetGraphCacheRequest(name=f"jobs/{name}/graphCache"), timeout=30)
                if state_of(seen) == "SUCCEEDED":
                    break
                if seen.progress.step > steps / 10:
                    points.append((seen.progress.step, server.resident_bytes()))
                    entries.add(sum(mode.entries for mode in cache.statistics))
                time.sleep(min(0.2, steps / 1e5))
            grows = slope(points)
            assert seen.progress.step >= steps, f"{name}: {seen.progress.step} steps in {epochs} epochs, {steps} are needed"
            # The number is 0 if the schedule was too long to be planned in full.
            assert cache.planned_train_shapes >= shapes, f"{name}: batches of {cache.planned_train_shapes} shapes, {shapes} are needed"
            assert len(entries) == 1, f"{name}: the number of entries changed: {sorted(entries)}"
            # A short trial proves nothing about memory.
            assert grows < MOST_SLOPE or steps < 50_000, f"{name}: memory grows by {grows / 1e6:.2f} MB each 10,000 steps"
            told.append(f"{name}: {seen.progress.step} steps of {cache.planned_train_shapes} shapes, {entries.pop()} entries, "
                        f"{grows / 1e6:+.2f} MB each 10,000 steps")
        assert server.stop() == 0
    return "; ".join(told)
