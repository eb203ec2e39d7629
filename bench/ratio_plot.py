"""Draws ratios with their 95 % intervals: a row for each thing that was measured, a dot for each side."""

import math
from xml.sax.saxutils import escape

TICKS = (0.25, 0.5, 1, 2, 5, 10, 20, 50, 100, 200)
LEFT, RIGHT, WIDTH, LINE, TOP = 150, 60, 760, 20, 64


def svg(title, rows, series, footer):
    """Returns the drawing as SVG. rows: [(label, {side: ratio})]; series: {side: (title, color)}. The axis is logarithmic, so that a half and a
    double lie equally far from one."""
    rows = [(label, ratios) for label, ratios in rows if ratios]
    ends = [end for _, ratios in rows for r in ratios.values() for end in (r["low"], r["high"])] + [0.8, 1.6]
    low, high = math.log(min(ends) / 1.1), math.log(max(ends) * 1.1)
    x = lambda value: LEFT + (WIDTH - LEFT - RIGHT) * (math.log(value) - low) / (high - low)
    parts, y = [], TOP
    text = lambda at, line, words, more="": parts.append(f'<text x="{at:.1f}" y="{line + 4}" {more}>{escape(words)}</text>')
    for label, ratios in rows:
        text(LEFT - 12, y + LINE * (len(ratios) - 1) / 2, label, 'text-anchor="end"')
        for side, r in ratios.items():
            a, b, middle, color = x(r["low"]), x(r["high"]), x(r["median"]), series[side][1]
            parts.append(f'<path d="M{a:.1f} {y}H{b:.1f}M{a:.1f} {y - 4}v8M{b:.1f} {y - 4}v8" stroke="{color}" stroke-width="2"/>'
                         f'<circle cx="{middle:.1f}" cy="{y}" r="4" fill="{color}"/>')
            text(b + 8, y, f"{r['median']:.3g}", f'fill="{color}"')
            y += LINE
        y += LINE // 2
    bottom = y - LINE // 2
    grid = "".join(f'<path d="M{x(t):.1f} {TOP - 14}V{bottom}" stroke="{"#222" if t == 1 else "#ddd"}"/>'
                   f'<text x="{x(t):.1f}" y="{bottom + 14}" text-anchor="middle">{t:g}</text>' for t in TICKS if low <= math.log(t) <= high)
    used = [side for side in series if any(side in ratios for _, ratios in rows)]
    step = min(190, (WIDTH - LEFT) // max(1, len(used)))
    legend = "".join(f'<circle cx="{LEFT + step * i}" cy="36" r="4" fill="{series[side][1]}"/>'
                     f'<text x="{LEFT + step * i + 10}" y="40">{escape(series[side][0])}</text>' for i, side in enumerate(used))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{bottom + 44}" font-family="sans-serif" font-size="12">'
            f'<rect width="100%" height="100%" fill="#fff"/><text x="12" y="18" font-size="14">{escape(title)}</text>'
            f'{legend}{grid}{"".join(parts)}<text x="12" y="{bottom + 36}" fill="#666">{escape(footer)}</text></svg>\n')
