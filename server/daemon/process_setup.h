// Sets up the process when it starts: heaps, the limit of open files, and how waiting threads spin.
#pragma once

namespace permafrost {

// Limits the number of heaps that the C library keeps. By default, glibc gives threads heaps of their own, up to
// eight per core. A heap keeps the memory that its threads freed, and every epoch reads its batches on new threads. A
// job on sampled neighbours thus held 16 times the memory of its batches: 745 MB. With two heaps it held 145 to 240
// MB. Steps allocate nothing, so threads seldom wait for a heap. Does nothing if MALLOC_ARENA_MAX is set, or without
// glibc. Threads: call it before any other thread is created.
void KeepFewHeaps();

// Raises the limit of open files to the most that the system allows. Logs a failure. Every watcher of a job takes a
// file descriptor. With thousands of watchers, a checkpoint must still get one. The usual limit of 1024 is meant for
// programs that use select(). Threads: call it before other threads open files.
void RaiseOpenFilesLimit();

// Sets how long the math library's threads spin while they wait for each other. By default, a waiting thread of GNU
// OpenMP spins for milliseconds before it sleeps. A training step consists of hundreds of parallel regions of
// microseconds each. If another process takes a core, a region may wait for a whole time slice of that process. While
// two compilers ran, a step took 30 times as long as with short spins. libgomp reads GOMP_SPINCOUNT when it is
// loaded, which is before main. So if neither GOMP_SPINCOUNT nor OMP_WAIT_POLICY is set, this function sets
// GOMP_SPINCOUNT and executes the program again in the same process. The function returns only if one of the
// variables is set, or if there is no /proc. macOS has no /proc, but libomp there lets threads sleep early anyway.
// Threads: call it first in main, before any thread is created.
void UseShortSpins(char** argv);

}  // namespace permafrost
