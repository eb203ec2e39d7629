// A hollow GPU: libtorch's CUDA half runs on it, with host memory as the device's and kernels that do nothing.
// Preloaded (LD_PRELOAD) where there is no GPU, it shows the control flow of a CUDA backend (allocations, streams,
// captures, pools, replays, copies, synchronisations) and no values: copies from the device bring zeros, whatever is
// there. One of a single byte brings 1, so that allclose and equal say yes; one of sixteen brings two doubles of 1, so
// that a mean loss is finite. It must also be found as libcuda.so.1, which libtorch opens by name.
//
// HOLLOW_MEMORY=BYTES  device memory (8 GiB); an allocation beyond it fails
// HOLLOW_CARDS=N       cards that the driver has (1)
// HOLLOW_DRIVER=N      the driver's version of CUDA, as it writes it (13000)
// HOLLOW_DIR=DIR       a folder, in which the process notes what it did:
//   log       captures, graphs, and each thread's first call. A line that begins with FORBIDDEN is a call that would
//             have ended a capture, or that the graph would not replay
//   launches  a line for each graph that was launched: what was done since the launch before it, as "name=times"
//   counts    all that was done since the process began, mapped into memory: records of a name (24 bytes, filled up
//             with zeros) and a number (8 bytes, of this machine). Also true after kill -9.
// In the same folder a test makes and removes switches. Each is on while its file is there:
//   no-memory          every allocation fails
//   no-capture-memory  every allocation in a capture fails
//   spoil              after each launch of a graph, copies from the device bring other numbers than before it
//   invalidate         every capture ends with an error
//   behind             no event has come when it is asked for, as if the device were behind
//
// Threads: safe anywhere; one capture at a time.
#pragma once

#include <stddef.h>

// These are counted. h2d: a copy from the host to the device, and so on. A blocking copy is one by cudaMemcpy, which
// waits.
#define HOLLOW_COUNTS(X) \
  X(launches)            \
  X(kernels)             \
  X(h2d_pageable)        \
  X(h2d_pinned)          \
  X(d2h)                 \
  X(d2d)                 \
  X(h2h)                 \
  X(memsets)             \
  X(blocking_copies)     \
  X(stream_syncs)        \
  X(event_syncs)         \
  X(device_syncs)        \
  X(mallocs)             \
  X(failed_mallocs)      \
  X(frees)               \
  X(bytes)               \
  X(captures)            \
  X(graphs)              \
  X(threads)             \
  X(other_calls)

enum hollow_count {
#define X(name) count_##name,
  HOLLOW_COUNTS(X)
#undef X
      count_end
};

// Notes a call of the device on this thread, by name.
void hollow_call(enum hollow_count what, const char* call);
void hollow_add(enum hollow_count what, long long by);
unsigned long long hollow_count(enum hollow_count what);
// Writes a line to the log; `format` has its newline.
void hollow_say(const char* format, ...) __attribute__((format(printf, 1, 2)));
// Writes this launch's line to `launches`.
void hollow_note_launch(void);
// Returns whether the switch is on.
int hollow_is(const char* name);
// Return nonzero while a capture runs, on any stream or on this one.
int hollow_captures(void);
int hollow_captures_on(const void* stream);
void hollow_kernel_in_capture(void);
// Notes a call that a capture forbids: the capture fails if its mode holds for this thread.
void hollow_forbid(const char* call);
// Returns the device's memory in bytes.
size_t hollow_memory(void);
// Changes what copies bring from now on; the switch `spoil` asks for it at each launch.
void hollow_spoil(void);

#define CALL(what) hollow_call(count_##what, __func__)
#define FORBID() hollow_forbid(__func__)
