"""The one way in which benchmarks compare: interleaved rounds, medians, and 95 % intervals by bootstrap."""

import random
import statistics


def interleave(sides, rounds, warm_up=1):
    """Calls every side once a round, in changing order, and returns what each gave: {name: [value of each round]}.
    `sides`: {name: callable of the round's number}. The values of the first `warm_up` rounds are thrown away."""
    names = list(sides)
    values = {name: [] for name in names}
    for number in range(warm_up + rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            value = sides[name](number)
            if number >= warm_up:
                values[name].append(value)
    return values


def ratio(numerators, denominators, resamples=10_000):
    """Median of the ratios round by round, with the 95 % interval of that median by bootstrap."""
    ratios = [a / b for a, b in zip(numerators, denominators, strict=True)]
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(resamples))
    return {"median": statistics.median(ratios), "low": medians[resamples * 25 // 1000], "high": medians[resamples * 975 // 1000],
            "rounds": len(ratios)}


def ratio_text(value):
    return f"{value['median']:.3g}  (95 %: {value['low']:.3g} to {value['high']:.3g}, rounds: {value['rounds']})"
