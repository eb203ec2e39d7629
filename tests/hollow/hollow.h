// A hollow GPU: libtorch's CUDA half runs on it, with host memory in place of device memory, and kernels that do
// nothing. On a machine without a GPU it is preloaded (LD_PRELOAD), and must also be found as libcuda.so.1, which
// libtorch opens by name.
// It shows the control flow of a CUDA backend (allocations, streams, captures, pools, replays, copies,
// synchronisations), but computes no values. Copies from the device return zeros, with two exceptions. A copy of one
// byte returns 1, so that allclose and equal say yes. A copy of sixteen bytes returns two doubles of 1, so that a
// mean loss is finite.
//
// Environment variables, with their defaults:
// HOLLOW_MEMORY=BYTES  device memory (8 GiB). A larger allocation fails.
// HOLLOW_CARDS=N       the number of GPUs that the driver reports (1)
// HOLLOW_DRIVER=N      the driver's CUDA version, in CUDA's own notation (13000)
// HOLLOW_DIR=DIR       the folder in which the process records what it did:
//   log       captures, graphs, and each thread's first call. A line that begins with FORBIDDEN is a call that would
//   have ended a capture, or that the graph would not replay.
//   launches  one line per launched graph: the calls since the launch before it, as "name=times"
//   counts    the totals since the process began, mapped into memory. Each record is a name (24 bytes, zero-padded)
//   and a number (8 bytes, native byte order). They remain correct after kill -9.
// A test creates and removes switches in the same folder. Each is on while its file exists:
//   no-memory          every allocation fails
//   no-capture-memory  every allocation during a capture fails
//   spoil              after each launch of a graph, copies from the device return other numbers than before it
//   invalidate         every capture ends with an error
//   behind             every event is reported as pending when queried, as if the device were behind
//
// Threads: safe anywhere. There can be one capture at a time.
#pragma once

#include <stddef.h>

// The names of the counts. h2d is a copy from host to device; the other copies are named likewise. A blocking copy is
// one by cudaMemcpy, which waits.
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

// Counts a device call. Logs the name of each thread's first call.
void hollow_call(enum hollow_count what, const char* call);
void hollow_add(enum hollow_count what, long long by);
unsigned long long hollow_count(enum hollow_count what);
// Writes a line to the log. `format` includes the newline.
void hollow_say(const char* format, ...) __attribute__((format(printf, 1, 2)));
// Writes the line of this launch to `launches`.
void hollow_note_launch(void);
// Returns whether the switch is on.
int hollow_is(const char* name);
// These return nonzero while a capture runs, on any stream or on `stream`.
int hollow_captures(void);
int hollow_captures_on(const void* stream);
void hollow_kernel_in_capture(void);
// Records a call that is forbidden during a capture. The capture fails if its mode applies to this thread.
void hollow_forbid(const char* call);
// Returns the device's memory in bytes.
size_t hollow_memory(void);
// Changes the numbers that copies from the device return from now on. The switch `spoil` calls it at each launch.
void hollow_spoil(void);

#define CALL(what) hollow_call(count_##what, __func__)
#define FORBID() hollow_forbid(__func__)
