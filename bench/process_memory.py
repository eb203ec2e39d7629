"""Resident memory of a process. Linux only."""


def memory(process):
    """Resident bytes, and the most that there were. `process`: an id, or `self`."""
    fields = dict(line.split(":", 1) for line in open(f"/proc/{process}/status"))
    size = lambda name: 1024 * int(fields[name].split()[0])
    return size("VmRSS"), size("VmHWM")
