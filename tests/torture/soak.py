"""A long job over far more shapes than a cache could hold: entries and memory stay as they are."""

import time

from tests.torture.world import Server, contract, folder_of, job_spec, state_of, write_set

MOST_SLOPE = 1e6  # bytes each 10,000 steps


def slope(points):
    """Of a line through (step, bytes), by least squares; bytes each 10,000 steps. 0 of fewer than two."""
    if len(points) < 2:
        return 0.0
    steps = sum(step for step, _ in points) / len(points)
    size = sum(value for _, value in points) / len(points)
    return 1e4 * sum((s - steps) * (v - size) for s, v in points) / sum((s - steps) ** 2 for s, _ in points)


def soak(bin_dir, seed, steps, graphs):
    made = contract()
    told = []
    with folder_of("soak") as folder:
        server = Server(bin_dir, folder).start()
        server.import_dataset("set", write_set(server.import_root / "set", graphs=graphs, nodes=8))
        # What a job keeps with the policy of pyg-team/pytorch_geometric#10689, and with one dynamic executable.
        for name, shapes in (("freeze", made.GraphCachePolicy.SHAPES_EXACT), ("dynamic", made.GraphCachePolicy.SHAPES_DYNAMIC)):
            spec = job_spec(epochs=2_000_000 // graphs, seed=seed, every_steps=max(steps // 10, 5))
            spec.graph_cache.shapes = shapes
            server.jobs.CreateJob(made.CreateJobRequest(job_id=name, spec=spec), timeout=30)
            points, entries = [], set()
            while True:
                seen = server.get(name)
                assert state_of(seen) not in ("FAILED", "SUCCEEDED"), f"{name}: {seen.error}"
                cache = server.caches.GetGraphCache(made.GetGraphCacheRequest(name=f"jobs/{name}/graphCache"), timeout=30)
                if seen.progress.step > steps / 10:
                    points.append((seen.progress.step, server.resident_bytes()))
                    entries.add(sum(mode.entries for mode in cache.statistics))
                if seen.progress.step >= steps:
                    break
                time.sleep(min(0.2, steps / 1e5))
            server.jobs.CancelJob(made.CancelJobRequest(name=f"jobs/{name}"), timeout=30)
            server.await_end(name)
            grows = slope(points)
            assert len(entries) == 1, f"{name}: the number of entries changed: {sorted(entries)}"
            # A short trial says nothing of memory.
            assert grows < MOST_SLOPE or steps < 50_000, f"{name}: memory grows by {grows / 1e6:.2f} MB each 10,000 steps"
            told.append(f"{name}: {points[-1][0]} steps, {entries.pop()} entries, {grows / 1e6:+.2f} MB each 10,000 steps")
        assert server.stop() == 0
    return "; ".join(told)
