"""Tests the settings that fio is given: usage: python -m tests.bench.fio_test"""

import unittest

from bench import fio


class Blocks(unittest.TestCase):
    def test_their_mean_is_what_was_asked_for(self):
        for mean in (4096, 4612, 6000, 8192, 9100, 14000, 32768):
            blocks = [part.split("/") for part in fio.blocks_of_mean(mean).split(":")]
            self.assertEqual(sum(int(percent) for _, percent in blocks), 100)
            self.assertAlmostEqual(sum(int(size) * int(percent) for size, percent in blocks) / 100 / mean, 1, delta=0.01)

    def test_none_is_shorter_than_a_page(self):
        self.assertEqual(fio.blocks_of_mean(1000), "4096/100:8192/0")


if __name__ == "__main__":
    unittest.main()
