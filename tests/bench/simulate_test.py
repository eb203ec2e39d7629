"""The parts of `bench/run simulate` that need no daemon, against closed forms: usage: python -m tests.bench.simulate_test"""

import dataclasses
import json
import math
import pathlib
import tempfile
import types
import unittest

import numpy as np

from bench import simulate
from bench.cluster_model import (HEADER, WHOLE, Job, Network, all_reduce, broadcast_seconds, computes, epoch, evaluation_seconds, exchange, gather,
                                 shares, step_seconds)

JOB = Job(examples=1000, batch=100, fixed=1e-3, per_example=1e-4, sums=(1032, 8, 400_000), tensors=30, state_bytes=1_200_000, valid_batches=8,
          valid_seconds=0.08)


class Exchange(unittest.TestCase):
    def test_one_rank_exchanges_nothing(self):
        self.assertEqual(list(exchange(np.array([3.0]), 1000, Network(bandwidth=1, latency=1))), [3.0])

    def test_latency_is_paid_once(self):
        for ranks in (2, 5, 64):
            np.testing.assert_allclose(exchange(np.zeros(ranks), 1000, Network(latency=0.25)), 0.25)

    def test_a_processor_sends_and_receives_each_message(self):
        for ranks in (2, 3, 100):
            ended = exchange(np.zeros(ranks), 1000, Network(per_message=1e-3))
            self.assertAlmostEqual(ended[0], (ranks - 1) * 1e-3)
        one = exchange(np.zeros(2), 1000 - HEADER, Network(per_byte=1e-6))
        np.testing.assert_allclose(one, 1e-3)

    def test_links_fill_in_the_order_of_ranks(self):
        # Rank 0 receives first. The last rank's messages are sent as the (ranks - 1)th, and then pass through its own link.
        ranks, wire = 8, 0.5
        ended = exchange(np.zeros(ranks), 1000 - HEADER, Network(bandwidth=8 * 1000 / wire))
        self.assertAlmostEqual(ended[0], (ranks - 1) * wire)
        self.assertAlmostEqual(ended[-1], (2 * ranks - 3) * wire)
        self.assertTrue((np.diff(ended) >= 0).all())

    def test_all_wait_for_the_last(self):
        begin = np.array([0.0, 5.0, 1.0])
        np.testing.assert_allclose(exchange(begin, 8, Network(latency=0.5)), [5.5, 5.0, 5.5])

    def test_messages_of_a_late_rank_alone_cost_after_the_others(self):
        ended = exchange(np.array([0.0, 0.0, 100.0]), 1000 - HEADER, Network(bandwidth=8000))
        self.assertAlmostEqual(ended[0], 101.0)
        self.assertAlmostEqual(ended[2], 102.0)


class Sums(unittest.TestCase):
    def test_a_large_sum_takes_two_exchanges_of_a_part(self):
        net = Network(bandwidth=1e9, latency=1e-4)
        begin = np.zeros(4)
        part = exchange(exchange(begin, (WHOLE + 4) / 4, net), (WHOLE + 4) / 4, net)
        np.testing.assert_allclose(all_reduce(begin, WHOLE + 4, net), part)
        np.testing.assert_allclose(all_reduce(begin, WHOLE, net), exchange(begin, WHOLE, net))

    def test_trees_take_rounds(self):
        net = Network(latency=1.0, per_message=0.5, trees=True)
        for ranks, rounds in ((2, 1), (3, 2), (64, 6)):
            np.testing.assert_allclose(all_reduce(np.zeros(ranks), 8, net), 1.5 * rounds)
            np.testing.assert_allclose(all_reduce(np.zeros(ranks), WHOLE + 1, net), 3.0 * rounds)
            self.assertAlmostEqual(broadcast_seconds(ranks, 30, 1000, net), 1.5 * rounds)

    def test_gathered_rows_pass_each_link_once(self):
        size, net = 8000 - 8 * HEADER, Network(bandwidth=8000)
        self.assertAlmostEqual(gather(np.zeros(8), size, net)[0], 7 / 8 * 8)
        np.testing.assert_allclose(gather(np.zeros(8), 8000, dataclasses.replace(net, latency=1.0, trees=True)), 3 + 8)

    def test_rank_0_sends_its_weights_to_each(self):
        self.assertEqual(broadcast_seconds(1, 30, 1_000_000, Network(bandwidth=1)), 0)
        self.assertAlmostEqual(broadcast_seconds(5, 1, 1000 - HEADER, Network(bandwidth=8000, latency=0.25)), 4 * 1 + 0.25)
        self.assertAlmostEqual(broadcast_seconds(5, 30, 1000, Network(per_message=2e-3)), 4 * 30 * 1e-3)


class Steps(unittest.TestCase):
    def test_shares_differ_by_one_at_most(self):
        self.assertEqual(list(shares(10, 4)), [3, 3, 2, 2])
        self.assertEqual(list(shares(2, 4)), [1, 1, 0, 0])

    def test_a_step_without_costs_of_exchange_is_the_slowest_share(self):
        self.assertAlmostEqual(step_seconds(JOB, 1, Network()), 1e-3 + 100 * 1e-4)
        self.assertAlmostEqual(step_seconds(JOB, 3, Network()), 1e-3 + 34 * 1e-4)
        self.assertAlmostEqual(step_seconds(JOB, 4, Network(), straggler=2), 2 * (1e-3 + 25 * 1e-4))

    def test_a_step_pays_the_latency_of_each_exchange(self):
        # The gradients take two exchanges.
        self.assertAlmostEqual(step_seconds(JOB, 4, Network(latency=0.01)), 1e-3 + 25 * 1e-4 + 4 * 0.01)

    def test_unequal_examples_cost_what_the_slowest_of_the_normal_shares_does(self):
        job = dataclasses.replace(JOB, fixed=0.0, batch=200, spread=0.2)
        slowest = np.mean([computes(job, 2, 1.0, seed).max() for seed in range(4000)])
        # The larger of two normal values lies on average 1 / sqrt(pi) standard deviations above their mean.
        self.assertAlmostEqual(slowest, 1e-4 * (100 + 0.2 * 10 / math.sqrt(math.pi)), delta=1e-5)


class Epochs(unittest.TestCase):
    def test_parts_add_up(self):
        net = Network(bandwidth=1e10, latency=2e-5, per_message=5e-6, per_byte=1e-10)
        job = dataclasses.replace(JOB, examples=1030, fetched=1e5)
        for ranks in (2, 8, 64):
            found = epoch(job, ranks, net)
            step = lambda job: np.mean([step_seconds(job, ranks, net, seed=seed) for seed in range(128 // ranks)])
            ends = evaluation_seconds(job, ranks, net) + broadcast_seconds(ranks, 30, 1_200_000, net)
            self.assertAlmostEqual(sum(found.values()), 10 * step(job) + step(dataclasses.replace(job, batch=30)) + ends)
            self.assertTrue(all(seconds >= -1e-12 for seconds in found.values()), found)
            self.assertGreater(found["fetch"], 10 * 100 / ranks * 1e5 / ranks * 8 / 1e10)

    def test_each_part_is_that_of_its_cost(self):
        costs = {"latency": Network(latency=1e-3), "messages": Network(per_message=1e-3), "bandwidth": Network(bandwidth=1e6)}
        for part, net in costs.items():
            found = epoch(dataclasses.replace(JOB, valid_seconds=0.0), 4, net)
            self.assertEqual({name for name in ("latency", "messages", "bandwidth") if found[name] > 1e-9}, {part})
            self.assertAlmostEqual(found["compute"], 10 * (1e-3 + 25 * 1e-4))

    def test_one_rank_computes_and_evaluates_alone(self):
        found = epoch(JOB, 1, Network(bandwidth=1, latency=1, per_message=1, per_byte=1))
        self.assertAlmostEqual(found["compute"], 10 * 11e-3)
        self.assertAlmostEqual(found["evaluation"], 0.08)
        self.assertAlmostEqual(sum(found.values()), 0.19)

    def test_whole_batches_of_an_evaluation_are_dealt(self):
        self.assertAlmostEqual(evaluation_seconds(JOB, 3, Network()), 0.03)
        self.assertAlmostEqual(evaluation_seconds(JOB, 100, Network()), 0.01)


NETWORK = Network(per_message=6e-6, per_byte=5e-10)


def measurements():
    """Returns what daemons would report whose cost is exactly the model's: steps of 1 ms plus 0.02 ms a graph, and twice that with 256
    channels."""
    models = [{"hidden": hidden, "sums": [8 * (1 + 2 * hidden), 8, 4 * parameters], "tensors": 30, "state_bytes": 12 * parameters}
              for hidden, parameters in ((64, 40_000), (256, 600_000))]
    rows = []
    for scale, model in zip((1, 2), models):
        for batch in (32, 256):
            job = Job(examples=10_240, batch=batch, fixed=scale * 1e-3, per_example=scale * 2e-5, sums=tuple(model["sums"]),
                      valid_batches=1024 // batch, valid_seconds=0.04)
            for layout, (ranks, cores) in simulate.LAYOUTS.items():
                ran, network = (job, NETWORK) if ranks == cores else simulate.crowd(job, dataclasses.replace(NETWORK, latency=0.0))
                network = dataclasses.replace(network, latency=0.0 if ranks == cores else 4e-5)
                rows.append({"hidden": model["hidden"], "batch": batch, "layout": layout, "step": step_seconds(ran, ranks, network),
                             "compute": job.fixed + job.per_example * batch / ranks, "valid": evaluation_seconds(ran, ranks, network)})
    large = {"hidden": 256, "fan_out": "15,10,5", "valid_seeds": 2500,
             "rows": [{"batch": batch, "step": 2e-3 + 1e-6 * 90 * batch, "edges": 90.0, "valid": 0.5} for batch in (128, 1024)]}
    return {"graphs": 10_240, "valid_graphs": 1024, "spread": 0.0, "models": models, "rows": rows, "large": large}


class Fits(unittest.TestCase):
    def test_no_factor_is_below_zero(self):
        self.assertEqual(simulate.fit([[1, 1], [1, 2]], [1.0, 3.0], [1, 1])[0], 0)
        np.testing.assert_allclose(simulate.fit([[1, 1, 1], [1, 2, 3]], [3.0, 5.0, 7.0], [1, 2, 3]), [1, 2])

    def test_costs_are_found_again(self):
        measured = measurements()
        job, network = simulate.graph_job(measured, measured["models"][1], 256), simulate.network_of(measured)
        np.testing.assert_allclose([job.fixed, job.per_example], [2e-3, 4e-5])
        np.testing.assert_allclose([network.per_message, network.per_byte], [NETWORK.per_message, NETWORK.per_byte])

    def test_four_ranks_that_cost_what_the_model_says_are_predicted(self):
        for row in simulate.check(measurements()):
            self.assertAlmostEqual(row["error"], 0)
            self.assertAlmostEqual(row["turn_seconds"], 4e-5)

    def test_a_large_graph_costs_by_the_edges_of_a_seed(self):
        arguments = types.SimpleNamespace(seeds=1000, divided=False)
        graph = {"nodes": 1000, "edges": 8000, "features": 10, "classes": 3, "train": 5000, "valid": 100}
        # A node has 8 neighbours on average, so no more are found.
        job = simulate.large_job(measurements(), graph, arguments, 4)
        self.assertEqual(simulate.hops(graph, [15, 10, 5]), [8, 64, 320])
        np.testing.assert_allclose([job.fixed, job.per_example, job.valid_seconds], [2e-3, 72e-6, 0.02])
        self.assertEqual((job.batch, job.fetched), (4000, 0))
        self.assertEqual(simulate.large_job(measurements(), graph, arguments, 8).batch, 5000)
        arguments.divided = True
        self.assertEqual(simulate.large_job(measurements(), graph, arguments, 4).fetched, 4 * 10 * 393)

    def test_a_file_of_something_else_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "other.json"
            for text in ("no json", "[]", json.dumps({"rows": []})):
                path.write_text(text)
                with self.assertRaisesRegex(RuntimeError, "other.json: accepted: "):
                    simulate.read(path)


if __name__ == "__main__":
    unittest.main()
