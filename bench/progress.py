"""Shows on a terminal, in one line, how far a long benchmark is and how long it will take. Shows nothing elsewhere."""

import shutil
import sys
import time


def span(seconds):
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


class Progress:
    """The progress of a benchmark. total: the number of turns in all rounds. The time left is estimated from the pace so far, with
    preparations."""

    def __init__(self, name, total, out=sys.stderr):
        self.name, self.total, self.done, self.out, self.begin = name, total, 0, out, time.monotonic()
        self.shown = out.isatty()

    def turn(self):
        self.done += 1

    def drop(self, turns):
        """Removes turns that will not take place."""
        self.total -= turns

    def left(self):
        return (time.monotonic() - self.begin) / self.done * (self.total - self.done)

    def say(self, text):
        if not self.shown:
            return
        eta = f", about {span(self.left())} left" if self.done else ""
        width = shutil.get_terminal_size().columns - 1
        print(f"\r{f'{self.name}: {text}; turn {self.done} of {self.total}{eta}':{width}.{width}}", end="", file=self.out, flush=True)

    def close(self):
        if self.shown:
            print("\r\033[K", end="", file=self.out, flush=True)
