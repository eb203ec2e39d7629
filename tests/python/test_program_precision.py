"""Tests a program whose job rounds the factors of its products to bfloat16."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import torch_geometric.nn as gnn
from torch import nn

import permafrost
from bench import module_nets
from tests.python import zinc
from tests.python.nets import WIDTH

pytestmark = pytest.mark.usefixtures("one_thread")


class WithoutProducts(nn.Module):
    """A module without a product with a weight."""

    def __init__(self):
        super().__init__()
        self.atoms = nn.Embedding(28, 1)

    def forward(self, x, batch, batch_size: int):
        return gnn.global_mean_pool(self.atoms(x.view(-1)), batch, batch_size)


def test_precision_rounds_the_products_of_a_module(client):
    client.datasets.import_pyg(zinc.molecules(), "zinc-precision", splits=zinc.PARTS, progress=False)
    torch.manual_seed(4)
    module = module_nets.make("gine", WIDTH, 2)
    common = {"epochs": 3, "batch_size": 8, "seed": 5}
    try:
        rounded = client.jobs.submit("zinc-precision", module, precision="bfloat16", **common).wait()
    except permafrost.InvalidArgument as error:
        assert "bfloat16 wants a processor with AVX512-BF16" in error.violations[0].description
        assert "avx512_bf16" not in Path("/proc/cpuinfo").read_text()
        pytest.skip("this processor has no AVX512-BF16")
    full = client.jobs.submit("zinc-precision", module, **common).wait()
    a, b = (job.epochs()[0]["train_loss"] for job in (rounded, full))
    assert a != b
    assert a == pytest.approx(b, rel=0.02)
    job = client.jobs.submit("zinc-precision", WithoutProducts(), precision="bfloat16", **common).wait()
    assert "precision bfloat16 has no effect" in "".join(job.logs())
    assert "precision bfloat16" not in "".join(rounded.logs())
