// The process asks this of its system as it starts: heaps, open files, and threads that wait.
#pragma once

namespace permafrost {

// Bounds how many heaps the C library keeps. glibc gives threads heaps of their own, up to eight a core, and each keeps
// what its threads freed. Every epoch reads its batches on new threads, so that a job on sampled neighbours came to
// hold its batches sixteen times: 745 MB where two heaps held 145 to 240. Steps allocate nothing, so that threads
// seldom wait for a heap. Leaves the choice to who sets MALLOC_ARENA_MAX; does nothing without glibc. Threads: before
// any other thread.
void KeepFewHeaps();

// Raises the number of files that the process may hold open to the most that the system allows; where it cannot, says
// so in the log. Every watcher of a job is a file descriptor, and a checkpoint must find one free among thousands: the
// usual limit of 1024 is for programs that use select(). Threads: before others open files.
void RaiseOpenFilesLimit();

// Sets how long the math library's threads spin while they wait for each other. GNU OpenMP spins for milliseconds
// before it sleeps. A training step is hundreds of regions of microseconds, so as soon as anything else wants a core
// each of them waits out a time slice: beside two compilers a step took 30 times as long as with short spins. libgomp
// reads GOMP_SPINCOUNT when it is loaded, which is before main: where neither it nor OMP_WAIT_POLICY is set, this sets
// it and starts the program anew in the same process. Returns in the process that has it, and where there is no /proc
// (macOS, whose libomp sleeps early by itself). Threads: first thing in main, before any thread.
void UseShortSpins(char** argv);

}  // namespace permafrost
