"""The ratios of `compare` as a drawing: for each workload how many times Permafrost's step PyG's takes, with its 95 % interval."""

import math
from xml.sax.saxutils import escape

COLORS = {"pyg": "#c2571a", "pyg-loader": "#8a6d00", "pyg-compile": "#5b4bb5"}
TICKS = (0.25, 0.5, 1, 2, 5, 10, 20, 50, 100, 200)
LEFT, RIGHT, WIDTH, LINE, TOP = 150, 60, 760, 20, 64


def svg(result, names):
    """`names`: side -> how it is called. Logarithmic, so that half and twice lie equally far from one."""
    ends = [end for row in result["rows"] for r in row["ratios"].values() for end in (r["low"], r["high"])] + [0.8, 1.6]
    low, high = math.log(min(ends) / 1.1), math.log(max(ends) * 1.1)
    x = lambda value: LEFT + (WIDTH - LEFT - RIGHT) * (math.log(value) - low) / (high - low)
    parts, y = [], TOP
    text = lambda at, line, words, more="": parts.append(f'<text x="{at:.1f}" y="{line + 4}" {more}>{escape(words)}</text>')
    for row in (row for row in result["rows"] if row["ratios"]):
        text(LEFT - 12, y + LINE * (len(row["ratios"]) - 1) / 2, row["workload"], 'text-anchor="end"')
        for name, r in row["ratios"].items():
            a, b, middle = x(r["low"]), x(r["high"]), x(r["median"])
            parts.append(f'<path d="M{a:.1f} {y}H{b:.1f}M{a:.1f} {y - 4}v8M{b:.1f} {y - 4}v8" stroke="{COLORS[name]}" stroke-width="2"/>'
                         f'<circle cx="{middle:.1f}" cy="{y}" r="4" fill="{COLORS[name]}"/>')
            text(b + 8, y, f"{r['median']:.3g}", f'fill="{COLORS[name]}"')
            y += LINE
        y += LINE // 2
    bottom = y - LINE // 2
    grid = "".join(f'<path d="M{x(t):.1f} {TOP - 14}V{bottom}" stroke="{"#222" if t == 1 else "#ddd"}"/>'
                   f'<text x="{x(t):.1f}" y="{bottom + 14}" text-anchor="middle">{t:g}</text>' for t in TICKS if low <= math.log(t) <= high)
    used = [name for name in COLORS if any(name in row["ratios"] for row in result["rows"])]
    legend = "".join(f'<circle cx="{LEFT + 190 * i}" cy="36" r="4" fill="{COLORS[name]}"/><text x="{LEFT + 190 * i + 10}" y="40">{escape(names[name])}</text>'
                     for i, name in enumerate(used))
    m, rounds = result["machine"], sorted({row["pairs"] for row in result["rows"]})
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{bottom + 44}" font-family="sans-serif" font-size="12">'
            f'<rect width="100%" height="100%" fill="#fff"/><text x="12" y="18" font-size="14">Time of a training step, over Permafrost\'s '
            f'(1: equal; more: PyG is slower)</text>{legend}{grid}{"".join(parts)}'
            f'<text x="12" y="{bottom + 36}" fill="#666">{escape(m["cpu"])}, {result["threads"]} threads; medians of {" or ".join(map(str, rounds))} rounds, '
            f'95 % intervals</text></svg>\n')
