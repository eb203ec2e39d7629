"""GraphZero in a process of its own: answers each command on its standard input with one line of JSON.

`python -m bench.peer_graphzero GRAPH_DIR STORE SETTINGS`. Lists of nodes are made before the clock starts, because GraphZero's
calls take only lists. The exception is a hop whose nodes the hop before it finds.
"""

import contextlib
import json
import pathlib
import subprocess
import sys
import time

from bench.tools import peer_environment


class Program:
    """A program that answers each line on its standard input with one line of JSON."""

    def __init__(self, *command, **options):
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)

    def ask(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        # Skips lines that a library printed.
        for line in self.process.stdout:
            if line.startswith("{"):
                answer = json.loads(line)
                if "error" in answer:
                    raise RuntimeError(f"{self.process.args[0]}: {command}: {answer['error']}")
                return answer
        raise RuntimeError(f"{self.process.args[0]} ended at {command}")

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Peer(Program):
    def __init__(self, graph, tools, settings):
        self.store = tools.work / f"graphzero-{graph.name}.gl"
        super().__init__(sys.executable, "-m", "bench.peer_graphzero", graph, self.store, json.dumps(settings),
                         env=peer_environment(tools.threads))

    def store_bytes(self):
        return self.store.stat().st_size


@contextlib.contextmanager
def maybe(arguments, graph, tools, **settings):
    """Yields the peer, or None if arguments.peer does not name it."""
    if arguments.peer != "graphzero":
        yield None
        return
    peer = Peer(graph, tools, settings)
    try:
        yield peer
    finally:
        peer.close()


def main():
    import graphzero
    import numpy as np

    from bench.peer_numpy import batches_of, relabelled

    folder, store, settings = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), json.loads(sys.argv[3])
    if not store.exists():
        graphzero.convert_csv_to_gl(str(folder / "edges.csv"), str(store), False)
    graph = graphzero.Graph(str(store))
    nodes = int(np.load(folder / "node_label.npy", mmap_mode="r").shape[0])
    batches = {order: [batch.tolist() for batch in batches_of(nodes, order, settings)] for order in ("shuffled", "rows")} if settings else {}
    starts = np.random.default_rng(1).permutation(nodes)[: settings.get("walks", 0)].tolist()

    def convert(_):
        scratch = store.with_suffix(f".{time.time_ns()}.gl")
        graphzero.convert_csv_to_gl(str(folder / "edges.csv"), str(scratch), False)
        scratch.unlink()
        return 0

    def neighbors(order):
        return lambda _: sum(graph.batch_random_fanout(batch, settings["fan_out"]).size for batch in batches[order])

    def subgraphs(_):
        draw = lambda found, fan_out: (np.repeat(found, fan_out), graph.batch_random_fanout(found.tolist(), fan_out).ravel())
        return sum(relabelled(np.array(batch), settings["fan_outs"], draw) for batch in batches["shuffled"][: settings["batches"]])

    # GraphZero's length counts steps; ours counts nodes.
    steps = settings.get("length", 1) - 1
    works = {"import": convert, "neighbors": neighbors("shuffled"), "neighbors-rows": neighbors("rows"),
             "neighbors-replace": neighbors("shuffled"), "subgraphs": subgraphs,
             "walk": lambda _: graph.batch_random_walk_uniform(starts, steps).shape[0] * steps,
             "node2vec": lambda _: graph.batch_random_walk(starts[: max(1, len(starts) // 10)], steps, 0.5, 2.0).shape[0] * steps}
    for line in sys.stdin:
        words = line.split()
        begin = time.perf_counter()
        done = works[words[0]](words[1:])
        # GraphZero may leave an unfinished line on the output.
        print("\n" + json.dumps({"seconds": time.perf_counter() - begin, "done": int(done)}), flush=True)


if __name__ == "__main__":
    main()
