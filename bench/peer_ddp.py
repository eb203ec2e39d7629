"""PyG's side of `replicas`: reads settings as JSON from standard input, writes {milliseconds, processes, version} as JSON.

With several processes, the module is under DistributedDataParallel with Gloo, and each process takes its share of every batch. Batch norms
are over each process's own rows, since SyncBatchNorm needs GPUs. Batches are made before the clock starts."""

import json
import os
import random
import socket
import statistics
import sys
import time

import torch
import torch.distributed
import torch.multiprocessing
import torch_geometric
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import tests  # noqa: F401  the Python package's modules are found by it
from permafrost import models
from tests.parity import ogb

WARM_UP = 5


def batches(settings, rank):
    """Returns this process's share of each global batch."""
    graphs = torch.load(settings["graphs"])
    size, processes = settings["batch_size"], settings["processes"]
    made = []
    for begin in range(0, len(graphs) - size + 1, size):
        *inputs, y = ogb.collate(graphs[begin:begin + size][rank * size // processes:(rank + 1) * size // processes])
        made.append((inputs, y))
    return made


def keep(dataset, count, path):
    """Writes `count` graphs of the train split, shuffled, for processes that load them repeatedly."""
    order = list(ogb.split(dataset, "train"))
    random.Random(1).shuffle(order)
    graphs = ogb.read(dataset)
    torch.save([graphs[i] for i in order[:count]], path)


def train(rank, settings, port):
    """Trains, prints the result in process 0, and kills the process, because threads of torch may hang at its normal end."""
    torch.set_num_threads(settings["threads"])
    module = models.load(settings["weights"])
    module.train()
    if settings["processes"] > 1:
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
        torch.distributed.init_process_group("gloo", rank=rank, world_size=settings["processes"])
        module = DistributedDataParallel(module)
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-3, fused=True)
    made = batches(settings, rank)
    seconds = []
    for number in range(WARM_UP + settings["steps"]):
        inputs, y = made[number % len(made)]
        begin = time.perf_counter()
        optimizer.zero_grad()
        F.l1_loss(module(*inputs), y).backward()
        optimizer.step()
        seconds.append(time.perf_counter() - begin)
    if settings["processes"] > 1:
        torch.distributed.destroy_process_group()
    if rank == 0:
        print(json.dumps({"milliseconds": 1e3 * statistics.fmean(seconds[WARM_UP:]), "processes": settings["processes"],
                          "version": f"PyG {torch_geometric.__version__}"}), flush=True)
    os._exit(0)


def main():
    settings = json.load(sys.stdin)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(train, (settings, port), nprocs=settings["processes"])


if __name__ == "__main__":
    main()
