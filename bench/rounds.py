"""Compares sides, in the same way for all benchmarks: interleaved rounds, medians, and 95 % intervals by bootstrap."""

import random
import statistics


def interleave(sides, rounds, warm_up=1, after=None):
    """Calls every side once a round, in changing order, and returns the results: {name: [value of each round]}. `sides`: {name: callable
    that takes the round's number}. The values of the first `warm_up` rounds are dropped. After each later round, `after` is called with the
    values so far; the rounds end early if it returns false."""
    names = list(sides)
    values = {name: [] for name in names}
    for number in range(warm_up + rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            value = sides[name](number)
            if number >= warm_up:
                values[name].append(value)
        if number >= warm_up and after is not None and not after(values):
            break
    return values


def ratio(numerators, denominators, resamples=10_000):
    """Returns the median of the ratios of each round, with the 95 % interval of that median by bootstrap."""
    ratios = [a / b for a, b in zip(numerators, denominators, strict=True)]
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(resamples))
    return {"median": statistics.median(ratios), "low": medians[resamples * 25 // 1000], "high": medians[resamples * 975 // 1000],
            "rounds": len(ratios)}


def difference(ours, theirs, resamples=10_000):
    """Returns the mean of one sample minus that of another, independent one, with the 95 % interval by bootstrap over both. With one value
    on each side, low and high equal the mean."""
    draw = random.Random(1)
    means = lambda values: statistics.fmean(draw.choices(values, k=len(values)))
    differences = sorted(means(ours) - means(theirs) for _ in range(resamples))
    return {"mean": statistics.fmean(ours) - statistics.fmean(theirs), "low": differences[resamples * 25 // 1000],
            "high": differences[resamples * 975 // 1000], "values": [len(ours), len(theirs)]}


def difference_text(value):
    if min(value["values"]) < 2:
        return f"{value['mean']:+.4f}  (one value a side: no interval)"
    return f"{value['mean']:+.4f}  (95 %: {value['low']:+.4f} to {value['high']:+.4f}, values: {' and '.join(map(str, value['values']))})"


def ratio_text(value):
    return f"{value['median']:.3g}  (95 %: {value['low']:.3g} to {value['high']:.3g}, rounds: {value['rounds']})"
