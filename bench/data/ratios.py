"""How sure a ratio of interleaved runs is."""

import random
import statistics


def interval(ratios, resamples=10_000):
    """Median, and the 95 % interval of it by bootstrap."""
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(resamples))
    return statistics.median(ratios), medians[resamples * 25 // 1000], medians[resamples * 975 // 1000]
