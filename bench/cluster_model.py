"""Models how long the daemons of one job take for a step and an epoch, after server/collective, without running daemons.

Every rank has a clock. An exchange (tcp_group.cc) moves a rank's clock to the moment at which it has sent to all other ranks and received
from all of them. A rank has one thread, which sends to the other ranks in order and then receives. Each machine has one link to a switch
that never blocks. A link is first in, first out, and equally fast in both directions.
"""

import dataclasses
import math

import numpy as np

# Bytes of the header before each message (server/collective/connection.cc).
HEADER = 16
# Each rank sends a sum of up to this many bytes whole to every other rank (server/collective/tcp_group.cc).
WHOLE = 64 << 10
# The exchanges of an evaluation: the barrier, four sums, and three gathered columns of two exchanges each.
EVALUATION_EXCHANGES = 11
PARTS = ("compute", "waiting", "fetch", "bandwidth", "latency", "messages", "evaluation", "weights")


@dataclasses.dataclass(frozen=True)
class Network:
    """The network between the ranks.

    bandwidth: bits a second of a machine's link.
    latency: seconds from one rank to another.
    per_message, per_byte: processor seconds to send and receive one message, and each of its bytes.
    trees: whether sums and weights take log2(ranks) rounds. tcp_group does not do this."""

    bandwidth: float = math.inf
    latency: float = 0.0
    per_message: float = 0.0
    per_byte: float = 0.0
    trees: bool = False


@dataclasses.dataclass(frozen=True)
class Job:
    """The job whose steps are modelled.

    examples: graphs or seed nodes of an epoch.
    batch: graphs or seed nodes in a step of all ranks.
    fixed, per_example: a rank computes fixed + per_example * share seconds in a step.
    spread: the standard deviation of an example's cost over its mean.
    sums: bytes of each sum of a step, in order, the gradients last.
    tensors, state_bytes: number and total bytes of the weights and moments.
    valid_batches, valid_seconds: batches and seconds of an evaluation on one rank.
    gathered: bytes of an evaluation's predictions.
    fetched: bytes that an example needs before its step, of which each machine holds an equal part. 0 if each machine has the whole graph.
    """

    examples: int
    batch: int
    fixed: float
    per_example: float
    sums: tuple
    spread: float = 0.0
    tensors: int = 0
    state_bytes: int = 0
    valid_batches: int = 1
    valid_seconds: float = 0.0
    gathered: int = 0
    fetched: float = 0.0


def rounds_of(ranks):
    return math.ceil(math.log2(ranks))


def exchange(begin, size, network):
    """Returns when each rank has `size` bytes from every other rank, if rank r begins at begin[r]."""
    ranks = len(begin)
    if ranks == 1:
        return begin
    size += HEADER
    wire = 8 * size / network.bandwidth
    processor = (network.per_message + size * network.per_byte) / 2
    gap = max(wire, processor)
    order = np.argsort(begin, kind="stable")
    receiver = np.arange(ranks)[:, None]
    others = order != receiver
    # Leaves out a rank's own message, both in the order in which it sends and among the messages that it waits for.
    first = begin[order] + network.per_message / 2 + network.latency + gap * (receiver - (order < receiver))
    left = others[:, ::-1].cumsum(axis=1)[:, ::-1]
    received = np.where(others, first + gap * left, 0).max(axis=1)
    busy = (ranks - 1) * max(wire, 2 * processor)
    return np.maximum(received, begin + busy)


def all_reduce(begin, size, network):
    """Returns when each rank has the sum of all ranks, which is `size` bytes."""
    ranks = len(begin)
    if ranks == 1:
        return begin
    if network.trees:
        # Small sums use recursive doubling, and others recursive halving and doubling.
        whole = size <= WHOLE
        messages = rounds_of(ranks) * (1 if whole else 2)
        moved = size * (rounds_of(ranks) if whole else 2 * (ranks - 1) / ranks) + messages * HEADER
        time = messages * (network.latency + network.per_message) + moved * max(8 / network.bandwidth, network.per_byte)
        return np.full(ranks, begin.max() + time)
    if size <= WHOLE:
        return exchange(begin, size, network)
    return exchange(exchange(begin, size / ranks, network), size / ranks, network)


def gather(begin, size, network):
    """Returns when each rank has all `size` bytes, if every rank begins with an equal part of them."""
    ranks = len(begin)
    if network.trees and ranks > 1:
        time = rounds_of(ranks) * (network.latency + network.per_message) + size * max(8 / network.bandwidth, network.per_byte)
        return np.full(ranks, begin.max() + time)
    return exchange(begin, size / ranks, network)


def broadcast_seconds(ranks, tensors, size, network):
    """Returns the seconds until every rank has rank 0's tensors, `size` bytes in total. Rank 0 sends one tensor after another and waits for
    no answer."""
    if ranks == 1:
        return 0.0
    if network.trees:
        return rounds_of(ranks) * (network.latency + network.per_message + size * max(8 / network.bandwidth, network.per_byte))
    bytes_of_rank = size + tensors * HEADER
    sending = max(8 * bytes_of_rank / network.bandwidth, (tensors * network.per_message + bytes_of_rank * network.per_byte) / 2)
    return (ranks - 1) * sending + network.latency


def shares(batch, ranks):
    """Returns the examples of each rank, which are dealt in turns."""
    return batch // ranks + (np.arange(ranks) < batch % ranks)


def computes(job, ranks, straggler, seed):
    """Returns the seconds that each rank computes in a step. straggler: the factor by which the last rank is slower."""
    share = shares(job.batch, ranks)
    drawn = np.random.default_rng(seed).standard_normal(ranks)
    seconds = job.fixed + job.per_example * np.maximum(0, share + job.spread * np.sqrt(share) * drawn)
    seconds[-1] *= straggler
    return seconds


def step_seconds(job, ranks, network, straggler=1.0, seed=0):
    """Returns the seconds until the slowest rank has ended a step. Before each sum, a rank does an equal part of its computing."""
    part = computes(job, ranks, straggler, seed) / len(job.sums)
    clocks = np.zeros(ranks)
    if job.fetched:
        clocks = exchange(clocks, job.batch / ranks * job.fetched / ranks, network)
    for size in job.sums:
        clocks = all_reduce(clocks + part, size, network)
    return float(clocks.max())


def evaluation_seconds(job, ranks, network):
    clocks = np.full(ranks, job.valid_seconds * math.ceil(job.valid_batches / ranks) / job.valid_batches)
    for _ in range(EVALUATION_EXCHANGES - 1):
        clocks = all_reduce(clocks, 8, network)
    return float(gather(clocks, job.gathered, network).max())


def parts_of_step(job, ranks, network, straggler):
    """Returns the seconds of the parts in PARTS that a step has. Bandwidth, latency and messages are removed in this order, and each part
    is the time that its removal saves."""
    draws = range(max(1, 128 // ranks))
    mean = lambda seconds: sum(map(seconds, draws)) / len(draws)
    here = dataclasses.replace(job, fetched=0)
    step = lambda **free: mean(lambda seed: step_seconds(here, ranks, dataclasses.replace(network, **free), straggler, seed))
    whole, without_bytes = step(), step(bandwidth=math.inf, per_byte=0)
    without_latency = step(bandwidth=math.inf, per_byte=0, latency=0)
    slowest = mean(lambda seed: computes(job, ranks, straggler, seed).max())
    compute = job.fixed + job.per_example * job.batch / ranks
    fetch = mean(lambda seed: step_seconds(job, ranks, network, straggler, seed)) - whole if job.fetched else 0.0
    return compute, slowest - compute, fetch, whole - without_bytes, without_bytes - without_latency, without_latency - slowest


def epoch(job, ranks, network, straggler=1.0):
    """Returns the seconds of an epoch by PARTS. They add up to the whole epoch."""
    seconds = np.zeros(len(PARTS) - 2)
    for steps, batch in ((job.examples // job.batch, job.batch), (1, job.examples % job.batch)):
        if steps * batch > 0:
            seconds += steps * np.array(parts_of_step(dataclasses.replace(job, batch=batch), ranks, network, straggler))
    ends = (evaluation_seconds(job, ranks, network), broadcast_seconds(ranks, job.tensors, job.state_bytes, network))
    return dict(zip(PARTS, [*map(float, seconds), *ends]))
