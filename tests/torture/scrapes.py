"""Tests /metrics while a job trains: how long a reading takes, and what a reading each second costs the job."""

import statistics
import threading
import time
import urllib.request

from tests.torture.crowd import begin
from tests.torture.world import contract, folder_of, job_spec, state_of, until

MOST_MS = 50  # the most for 99 of 100 readings
MOST_SLOWER = 0.01  # relative to the time of a step
INTERVAL = 0.02  # seconds between readings
# More steps a second than any machine reaches with these graphs, so that the job still trains when the last round ends.
FASTEST = 50_000


class Scraper:
    """Reads /metrics about every INTERVAL, starting at once. Records the seconds of each reading."""

    def __init__(self, server):
        self.url = server.metrics_url
        self.took, self.broken, self.ended = [], None, threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        try:
            while True:
                began = time.monotonic()
                with urllib.request.urlopen(self.url, timeout=30) as page:
                    assert b"permafrost_train_steps_total" in page.read()
                self.took.append(time.monotonic() - began)
                if self.ended.wait(INTERVAL):
                    return
        except Exception as error:  # noqa: BLE001 - told by the thread that closes it
            self.broken = error

    def close(self):
        self.ended.set()
        self.thread.join()
        if self.broken:
            raise self.broken


def cpu_seconds(process):
    """Returns the processor time of a process over all its threads."""
    return time.clock_gettime(~process.pid << 3 | 2)  # the clock that Linux's clock_getcpuclockid() returns


def span(server, job, seconds, read):
    """Measures a job that trains for `seconds`, with or without readings of /metrics. Returns wall time and processor time of a step, the
    readings a second, and the duration of each."""
    before, began, worked = server.get(job).progress.step, time.monotonic(), cpu_seconds(server.process)
    scraper = Scraper(server) if read else None
    time.sleep(seconds)
    if scraper:
        scraper.close()
    worked, lasted = cpu_seconds(server.process) - worked, time.monotonic() - began
    after = server.get(job)
    assert state_of(after) == "RUNNING", f"the job ended within the trial: {after.error}"
    steps = after.progress.step - before
    assert steps > 0, f"no step in {seconds} s"
    took = scraper.took if scraper else []
    return lasted / steps, worked / steps, len(took) / lasted, took


def metrics(bin_dir, seed, rounds, seconds, graphs, held):
    """Compares `rounds` pairs of spans of `seconds` of one job: in one span /metrics is read about 50 times a second, in the other not.

    The extra time of a step in the first span, divided by the readings a second, is the cost of one reading each second. The division also
    reduces the noise of a busy machine. The two spans of a pair follow each other, so they meet much the same load, and the median leaves
    out pairs that did not.
    held: whether the limits are asserted.
    """
    made = contract()
    walls, works, took = [], [], []
    with folder_of("metrics") as folder:
        server = begin(bin_dir, folder, graphs)
        epochs = int((2 * rounds * seconds + 60) * FASTEST * 10 / graphs)
        spec = job_spec(epochs=epochs, seed=seed, every_steps=1_000_000)
        server.jobs.CreateJob(made.CreateJobRequest(job_id="j", spec=spec), timeout=30)
        until(60, "the first steps", lambda: server.get("j").progress.step > 1000)
        for pair in range(rounds):
            spans = {read: span(server, "j", seconds, read) for read in ((False, True) if pair % 2 else (True, False))}
            (wall, work, rate, readings), (bare_wall, bare_work, _, _) = spans[True], spans[False]
            walls.append((wall / bare_wall - 1) / rate)
            works.append((work / bare_work - 1) / rate)
            took += readings
        server.jobs.CancelJob(made.CancelJobRequest(name="jobs/j"), timeout=30)
        server.await_end("j")
        assert server.stop() == 0
    slower, worked = statistics.median(walls), statistics.median(works)
    told = (f"p99 {percentile(took):.1f} ms of {len(took)} readings; one each second makes training {slower:+.2%} slower and takes "
            f"{worked:+.2%} of its processor time ({rounds} pairs of {seconds} s)")
    if held:
        assert percentile(took) < MOST_MS, f"p99 is {MOST_MS} ms or more: {told}"
        assert max(slower, worked) < MOST_SLOWER, f"{MOST_SLOWER:.0%} or more: {told}"
    return told


def percentile(took, part=0.99):
    """Returns the percentile of the readings in milliseconds."""
    return 1000 * sorted(took)[min(len(took) - 1, int(part * len(took)))]
