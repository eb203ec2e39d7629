"""Shows the result of `bench/run gpu` as a table."""

from bench.gpu_rounds import SIDES

MB = 1e6
FACTS = ("name", "driver_version", "torch", "torch_geometric", "triton", "python")
# Maps each figure of the memory part to its title and unit, in the order of the output.
MEMORY = {"entries": ("executables", 1), "captures": ("captures", 1), "device_allocated": ("allocated MB", MB), "device_reserved": ("reserved MB", MB), "rss": ("resident MB", MB)}


def said(passed):
    return {True: "passed", False: "failed", None: "not judged"}[passed]


def self_test(part):
    why = "" if part["passed"] or not part["lines"] else f": {part['lines'][-1]}"
    return f"{said(part['passed'])}, {part['steps']} steps{why}"


def conformance(part):
    failures = f"; failed: {', '.join(part['failures'])}" if part["failures"] else ""
    return f"{said(part['passed'])}, {part['run']} tests, {part['skipped']} skipped{failures}"


def losses(part):
    device = part["device"]
    return (f"{said(part['passed'])}: at most {100 * part['largest']:.3g} % from the CPU's mean over {len(part['apart'])} epochs, whose lowerings are "
            f"{100 * part['cpu_spread']:.3g} % apart; {'the same' if part['repeats'] else 'other losses'} when trained again; "
            f"{device['captures_before_step_1']} captures before step 1, {device['captures_after_step_1']} after it")


def memory(part):
    rows = [f"{title} {part['grown'][name][0] / unit:.1f} then {part['grown'][name][1] / unit:.1f}" for name, (title, unit) in MEMORY.items()
            if name in part["grown"]]
    return f"{said(part['passed'])}, {part['steps']:,} steps; {'; '.join(rows) or 'too little was read'}"


CHECKS = {"self-test": self_test, "conformance": conformance, "losses": losses, "memory": memory}


def inside(side):
    """Describes a step by its kernels."""
    found = side.get("inside", {})
    if "kernel_seconds" in found:
        kernels = 1e3 * found["kernel_seconds"]
        return f"{found['kernels']:.0f} kernels, {kernels:.3f} ms; the step takes {side['ms_per_step'] / kernels:.2f} times as long"
    return found.get("left_out") or found.get("failed") or ""


def workload(part):
    number = lambda value, width, digits: f"{'-':>{width}}" if value is None else f"{value:{width},.{digits}f}"
    mb = lambda value: None if value is None else value / MB
    lines = [f"{part['title']}; {part['rounds']} rounds of turns of {part['seconds_a_turn']:g} s",
             f"  {'':28}{'ms/step':>9}{'per second':>12}{'device MB':>11}   over Permafrost (95 %)"]
    for name, side in part["sides"].items():
        if "ms_per_step" in side:
            r = part["ratios"].get(name)
            beside = f"   {r['median']:.2f}  ({r['low']:.2f} to {r['high']:.2f})" if r else ""
            lines.append(f"  {SIDES[name]:28}{side['ms_per_step']:9.3f}{number(side['counted_per_second'], 12, 0)}"
                         f"{number(mb(side['device_bytes']), 11, 0)}{beside}")
    lines += [f"  {SIDES[name]}: {words}" for name, side in part["sides"].items() if (words := inside(side))]
    lines += [f"  {SIDES[name]}: left out: {why}" for name, why in part["sides_left_out"].items()]
    return lines + [f"  {SIDES[name]}: failed: {why}" for name, why in part["sides_failed"].items()]


def text(result):
    device = result["device"]
    lines = ["; ".join(f"{field.replace('_', ' ')} {device[field]}" for field in FACTS if device.get(field)) or f"{device.get('device')}: {device.get('failed')}",
             f"{result['permafrost']}; {'complete' if result['complete'] else 'not complete'}", ""]
    for name, part in result["parts"].items():
        ended = next((f"{word.replace('_', ' ')}: {part[word]}" for word in ("failed", "left_out") if isinstance(part.get(word), str)), None)
        if name in CHECKS:
            lines.append(f"{name:14}{part['seconds']:7.1f} s   {ended or CHECKS[name](part)}")
        else:
            lines += ["", f"{name:14}{part['seconds']:7.1f} s   {ended or ''}".rstrip()]
            lines += workload(part) if part.get("sides") or part.get("sides_failed") else []
    return "\n".join(lines)
