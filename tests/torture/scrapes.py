"""/metrics while a job trains: how long a reading takes, and what a reading each second costs the job."""

import statistics
import threading
import time
import urllib.request

from tests.torture.crowd import begin
from tests.torture.world import contract, folder_of, job_spec, state_of


class Scraper:
    """Reads /metrics at an interval, as Prometheus does; seconds that each reading took."""

    def __init__(self, server, interval):
        self.url, self.interval = server.metrics_url, interval
        self.took, self.ended = [], threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.ended.wait(self.interval):
            began = time.monotonic()
            with urllib.request.urlopen(self.url, timeout=30) as page:
                assert b"permafrost_train_steps_total" in page.read()
            self.took.append(time.monotonic() - began)

    def close(self):
        self.ended.set()
        self.thread.join()


def metrics(bin_dir, seed, pairs, graphs, epochs):
    made = contract()
    ratios, took = [], []
    with folder_of("metrics") as folder:
        server = begin(bin_dir, folder, graphs)

        def train(name, interval):
            server.jobs.CreateJob(made.CreateJobRequest(job_id=name, spec=job_spec(epochs=epochs, seed=seed, every_steps=10_000)), timeout=30)
            scraper = Scraper(server, interval) if interval else None
            ended = server.await_end(name, limit=1200)
            if scraper:
                scraper.close()
            assert state_of(ended) == "SUCCEEDED", ended.error
            return sum(epoch.train_seconds for epoch in ended.epochs), scraper.took if scraper else []

        for pair in range(pairs):
            seconds = {}
            for interval in ((0, 1) if pair % 2 else (1, 0)):
                seconds[interval], readings = train(f"j{pair}-{interval}", interval)
                took += readings
            ratios.append(seconds[1] / seconds[0])
        # Of one reading a second there are few.
        quick = train("often", 0.02)[1]
        assert server.stop() == 0
    each_second = f"p99 {percentile(took):.1f} ms of {len(took)} readings, one a second; " if took else ""
    return (f"{each_second}p99 {percentile(quick):.1f} ms of {len(quick)}, 50 a second; "
            f"read each second, training takes {statistics.median(ratios):.3f} of the time ({pairs} pairs)")


def percentile(took, part=0.99):
    """In milliseconds."""
    return 1000 * sorted(took)[min(len(took) - 1, int(part * len(took)))]
