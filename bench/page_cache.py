"""Controls the page cache, and measures the disk below it. Linux only."""

import concurrent.futures
import os
import random
import time


def evict(store):
    """Evicts the file's pages from the page cache. Mapped pages stay."""
    descriptor = os.open(store, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def disk(store, seconds, reads=2000):
    """Returns MB/s of random 4 KiB reads, one at a time and 32 at a time, and of one long read."""
    size = store.stat().st_size
    descriptor = os.open(store, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    draw, speeds = random.Random(2), {}

    def rate(read, places):
        evict(store)
        begin, done = time.perf_counter(), 0
        for got in read(places):
            done += got
            if time.perf_counter() - begin > seconds:
                break
        return done / (time.perf_counter() - begin) / 1e6

    one = lambda place: len(os.pread(descriptor, 4096, place))
    places = [draw.randrange(0, size - 4096) // 4096 * 4096 for _ in range(reads)]
    speeds["random_1"] = rate(lambda p: map(one, p), places)
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        speeds["random_32"] = rate(lambda p: pool.map(one, p), [draw.randrange(0, size - 4096) // 4096 * 4096 for _ in range(8 * reads)])
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_NORMAL)
    speeds["long"] = rate(lambda p: (len(os.pread(descriptor, 1 << 20, place)) for place in p), range(0, size, 1 << 20))
    os.close(descriptor)
    return speeds
