// Bounds how many heaps the C library keeps.
#pragma once

namespace permafrost {

// glibc gives threads heaps of their own, up to eight a core, and each keeps what its threads freed. Every epoch reads
// its batches on new threads, so that a job on sampled neighbours came to hold its batches sixteen times: 745 MB where
// two heaps held 145 to 240. Steps allocate nothing, so that threads seldom wait for a heap. Leaves the choice to who
// sets MALLOC_ARENA_MAX; does nothing without glibc. Threads: before any other thread.
void KeepFewHeaps();

}  // namespace permafrost
