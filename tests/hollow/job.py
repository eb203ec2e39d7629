"""A job on a test's daemon, followed by the client, and its graph cache."""

import json
import time

ENDED = ("STATE_SUCCEEDED", "STATE_FAILED", "STATE_CANCELLED")


def until(what, ask, limit=600):
    end = time.monotonic() + limit
    while not (answer := ask()):
        if time.monotonic() > end:
            raise AssertionError(f"waited {limit} s for {what}")
        time.sleep(0.05)
    return answer


class Job:
    """A job on the daemon, followed by the client."""

    def __init__(self, daemon, name, *flags):
        self.daemon, self.name = daemon, name
        if flags:
            daemon.client("job", "submit", "--id", name, *flags)

    def show(self):
        return self.daemon.json("job", "show", self.name)

    def step(self):
        return int(self.show().get("progress", {}).get("step", 0))

    def reach(self, step):
        until(f"step {step} of {self.name}", lambda: self.step() >= step or self.show()["state"] in ENDED)

    def end(self):
        def ended():
            shown = self.show()
            return shown if shown["state"] in ENDED else None

        return until(f"the end of {self.name}", ended)

    def succeed(self):
        shown = self.end()
        assert shown["state"] == "STATE_SUCCEEDED", f"{self.name} ended as {shown['state']}: {shown.get('error')}"
        return shown

    def fail(self, reason, text):
        shown = self.end()
        assert shown["state"] == "STATE_FAILED", f"{self.name} ended as {shown['state']}"
        told = json.dumps(shown)
        assert reason in told and text in shown["error"], f"{self.name}: {shown['error']!r} does not tell {reason}, {text!r}"

    def cache(self):
        return Cache(self.daemon.json("cache", "show", self.name))

    def log(self):
        return self.daemon.client("job", "logs", self.name)


class Cache:
    def __init__(self, shown):
        self.shown = shown
        self.modes = [{name: int(value) for name, value in mode.items() if str(value).isdigit()} for mode in shown["statistics"]]

    def __getitem__(self, name):
        """Returns the sum of a counter over training and evaluation."""
        return sum(mode[name] for mode in self.modes)

    def train(self, name):
        return self.modes[0][name]

    def whole(self):
        """Asserts that every capture and every audit succeeded. Returns itself."""
        assert not self.shown["graphBreaks"], f"graph breaks: {self.shown['graphBreaks']}"
        assert self["auditFailures"] == 0, f"an audit failed: {self.shown['auditFailures']}"
        return self

    def breaks(self, text):
        told = [b["why"] for b in self.shown["graphBreaks"]]
        assert told and all(text in why for why in told), f"graph breaks: {told}, none of {text!r}"
