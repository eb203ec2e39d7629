"""Tests what benchmarks give to both sides, and how they measure them: usage: python -m tests.bench.sides_test"""

import itertools
import pathlib
import tempfile
import unittest

import numpy as np
import torch

from bench import link_files, peer_links, peer_training, power_law


class Metrics(unittest.TestCase):
    def test_roc_auc_counts_pairs(self):
        generator = torch.Generator().manual_seed(0)
        # Takes whole numbers, so that some scores are equal.
        out = torch.randint(0, 10, (60, 2), generator=generator).float()
        y = torch.randint(0, 2, (60, 2), generator=generator).float()
        y[3, 0] = y[4, 1] = float("nan")
        wanted = []
        for scores, classes in zip(out.T.tolist(), y.T.tolist()):
            pairs = list(itertools.product([s for s, c in zip(scores, classes) if c == 1], [s for s, c in zip(scores, classes) if c == 0]))
            wanted.append(sum((a > b) + (a == b) / 2 for a, b in pairs) / len(pairs))
        self.assertAlmostEqual(peer_training.roc_auc(out, y), sum(wanted) / 2)

    def test_a_target_of_one_class_has_no_roc_auc(self):
        out = torch.tensor([[1.0, 3.0], [2.0, 4.0]])
        self.assertEqual(peer_training.roc_auc(out, torch.tensor([[0.0, 1.0], [1.0, 1.0]])), 1)
        with self.assertRaises(SystemExit):
            peer_training.roc_auc(out, torch.ones(2, 2))

    def test_missing_targets_take_no_part(self):
        out, y = torch.tensor([[1.0], [2.0], [5.0]]), torch.tensor([[2.0], [float("nan")], [2.0]])
        self.assertEqual(peer_training.mean_absolute_error(out, y), 2)
        self.assertEqual(float(peer_training.LOSSES["l1"][0](out, y)), 2)
        self.assertEqual(float(peer_training.LOSSES["mse"][0](out, y)), 5)

    def test_mean_reciprocal_rank_is_among_a_links_own_negatives(self):
        module = torch.nn.Module()
        module.forward = lambda x, messages: x
        module.decoder = lambda rows, pairs: rows[pairs[0], 0] * rows[pairs[1], 0]
        x = torch.tensor([[1.0], [2.0], [3.0], [4.0]])
        links = torch.tensor([[0, 0], [3, 1]])
        # For the first link, the negatives' scores 3 and 2 are below its own score of 4. For the second, 3 is above its score of 2, and 2
        # equals it.
        negatives = torch.tensor([[0, 0, 0, 0], [2, 1, 2, 1]])
        self.assertAlmostEqual(peer_links.mean_reciprocal_rank(module, x, None, links, negatives), (1 / 1 + 1 / 2.5) / 2)


class LinkFiles(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.TemporaryDirectory()
        self.addCleanup(self.work.cleanup)
        work = pathlib.Path(self.work.name)
        power_law.write(work / "graph", nodes=300, edges=1500, width=2)
        self.edges = np.load(work / "graph" / "edge_index.npy")
        self.links = link_files.write(work / "graph", work / "copy", 0.1, 0.2, negatives=7, seed=3)
        self.again = link_files.write(work / "graph", work / "again", 0.1, 0.2, negatives=7, seed=3)

    def table(self, name):
        return np.load(self.links / f"{name}.npy")

    def test_every_link_is_in_one_split(self):
        found = [tuple(sorted(link)) for split in link_files.SPLITS for link in self.table(split).tolist()]
        self.assertEqual(len(found), len(set(found)))
        self.assertEqual(set(found), {tuple(sorted(edge)) for edge in self.edges.T.tolist() if edge[0] != edge[1]})
        sizes = [len(self.table(split)) for split in link_files.SPLITS]
        self.assertTrue(0.05 < sizes[1] / sum(sizes) < 0.15 and 0.15 < sizes[2] / sum(sizes) < 0.25, sizes)
        starts_low = np.mean([a < b for a, b in self.table("train")])
        self.assertTrue(0.4 < starts_low < 0.6, starts_low)

    def test_negatives_are_no_edges(self):
        edges = {tuple(sorted(edge)) for edge in self.edges.T.tolist()}
        for split in ("valid", "test"):
            links, negatives = self.table(split), self.table(f"{split}_negatives")
            self.assertEqual(negatives.shape, (len(links), 7))
            for (source, _), targets in zip(links.tolist(), negatives.tolist()):
                self.assertFalse({tuple(sorted((source, target))) for target in targets} & edges)
                self.assertNotIn(source, targets)
        self.assertFalse((self.links / "train_negatives.npy").exists())

    def test_equal_seeds_give_equal_files(self):
        for path in self.links.iterdir():
            self.assertEqual(path.read_bytes(), (self.again / path.name).read_bytes())

    def test_the_peer_reads_them_and_sends_no_message_along_a_held_out_link(self):
        links = peer_links.read_links(self.links)
        self.assertEqual(links["test"][0].T.tolist(), self.table("test").tolist())
        self.assertEqual(links["test"][1].size(1), 7 * len(self.table("test")))
        self.assertEqual(links["test"][1][:, 7:14].tolist(),
                         [[self.table("test")[1, 0]] * 7, self.table("test_negatives")[1].tolist()])
        edges = torch.from_numpy(np.concatenate([self.edges, self.edges[::-1]], axis=1).copy())
        messages = peer_links.without_held_out(edges, links, 300)
        held_out = {tuple(sorted(link)) for split in ("valid", "test") for link in self.table(split).tolist()}
        kept = [edge for edge in edges.T.tolist() if tuple(sorted(edge)) not in held_out]
        self.assertEqual(messages.T.tolist(), kept)

    def test_drawn_negatives_of_training_are_no_edges(self):
        edges = torch.from_numpy(np.concatenate([self.edges, self.edges[::-1]], axis=1).copy())
        pairs = peer_links.Negatives(edges, 300).draw(torch.arange(300).repeat(5))
        known = {tuple(edge) for edge in edges.T.tolist()}
        self.assertFalse({tuple(pair) for pair in pairs.T.tolist()} & known)
        self.assertTrue((pairs[0] != pairs[1]).all())


if __name__ == "__main__":
    unittest.main()
