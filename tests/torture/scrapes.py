"""/metrics while a job trains: how long a reading takes, and what a reading each second costs the job."""

import statistics
import threading
import time
import urllib.request

from tests.torture.crowd import begin
from tests.torture.world import contract, folder_of, job_spec, state_of, until

MOST_MS = 50  # of 99 of 100 readings
MOST_SLOWER = 0.01  # of the time of a step
INTERVAL = 0.02  # seconds between readings
# Steps a second that no machine reaches with these graphs, so that the job still trains when the last round ends.
FASTEST = 50_000


class Scraper:
    """Reads /metrics about each INTERVAL, at once for the first time; seconds that each reading took."""

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
    """Processor time of a process, all its threads together."""
    return time.clock_gettime(~process.pid << 3 | 2)  # as clock_getcpuclockid() of Linux makes it


def span(server, job, seconds, read):
    """Of `seconds` of a job that trains, with readings of /metrics or without: wall time and processor time of a step, the readings a
    second, and how long each took."""
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
    """`rounds` pairs of spans of `seconds` of one job, the one read about 50 times a second and the other not.

    What a step takes longer in the first, divided by the readings a second, is what one reading each second costs: of so small a part
    the noise of a busy machine is divided too. Neighbours in time meet much the same load, and the median leaves out pairs that did not.
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
    """In milliseconds."""
    return 1000 * sorted(took)[min(len(took) - 1, int(part * len(took)))]
