"""Tests how benchmarks compare sides: usage: python -m tests.bench.rounds_test"""

import unittest

from bench.rounds import difference, difference_text, interleave, ratio


class Rounds(unittest.TestCase):
    def test_every_side_runs_once_a_round_in_changing_order(self):
        calls = []
        side = lambda name: lambda number: calls.append((number, name)) or 10 * number
        values = interleave({"a": side("a"), "b": side("b")}, rounds=2)
        self.assertEqual(calls, [(0, "a"), (0, "b"), (1, "b"), (1, "a"), (2, "a"), (2, "b")])
        self.assertEqual(values, {"a": [10, 20], "b": [10, 20]}, "the warm-up's values are thrown away")

    def test_rounds_end_early_where_they_are_told_to(self):
        told = []
        values = interleave({"a": lambda number: number}, rounds=5, after=lambda so_far: told.append(list(so_far["a"])) or len(told) < 2)
        self.assertEqual(values, {"a": [1, 2]})
        self.assertEqual(told, [[1], [1, 2]], "the warm-up is no round")

    def test_ratio_is_taken_round_by_round(self):
        # The ratio of the medians would be 20 / 10.
        found = ratio([30.0, 20.0, 2.0], [10.0, 20.0, 1.0])
        self.assertEqual((found["median"], found["rounds"]), (2.0, 3))
        self.assertEqual((found["low"], found["high"]), (1.0, 3.0))

    def test_interval_is_narrow_where_rounds_agree(self):
        numerators = [2.0 + 0.01 * (i % 3) for i in range(60)]
        found = ratio(numerators, [1.0] * 60)
        self.assertLess(found["high"] - found["low"], 0.02)
        self.assertTrue(found["low"] <= found["median"] <= found["high"])

    def test_difference_is_of_means_of_samples_that_do_not_pair(self):
        found = difference([3.0, 5.0, 4.0], [1.0, 2.0])
        self.assertAlmostEqual(found["mean"], 2.5)
        self.assertEqual(found["values"], [3, 2])
        # The extremes pair the least of one sample with the most of the other.
        self.assertTrue(1.0 <= found["low"] < 2.5 < found["high"] <= 4.0)
        turned = difference([1.0, 2.0], [3.0, 5.0, 4.0])
        self.assertAlmostEqual(turned["mean"], -2.5)
        self.assertIn("-2.5000", difference_text(turned))

    def test_equal_samples_do_not_differ(self):
        values = [0.1 * i for i in range(20)]
        found = difference(values, values)
        self.assertEqual(found["mean"], 0)
        self.assertTrue(found["low"] < 0 < found["high"])

    def test_one_value_a_side_has_no_interval(self):
        self.assertIn("no interval", difference_text(difference([2.0], [1.0])))

    def test_rounds_must_pair_up(self):
        with self.assertRaises(ValueError):
            ratio([1.0], [1.0, 2.0])


if __name__ == "__main__":
    unittest.main()
