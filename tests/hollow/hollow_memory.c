// Memory and copies of a hollow GPU (hollow.h).
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "hollow.h"

#define OK(name, ...) \
  cudaError_t name(__VA_ARGS__) { return cudaSuccess; }

// Memory of the device and pinned memory of the host, which copies are told apart by.
struct block {
  char* begin;
  size_t size;
  int pinned;
};
static struct block blocks[1 << 16];
static size_t block_count;
static pthread_mutex_t blocks_lock = PTHREAD_MUTEX_INITIALIZER;

size_t hollow_memory(void) {
  const char* const bytes = getenv("HOLLOW_MEMORY");
  return bytes ? strtoull(bytes, 0, 10) : 8ull << 30;
}
static void* new_block(size_t size, int pinned) {
  char* const begin = aligned_alloc(512, (size + 511) & ~511ull);
  pthread_mutex_lock(&blocks_lock);
  if (block_count == sizeof blocks / sizeof *blocks) abort();
  blocks[block_count++] = (struct block){begin, size, pinned};
  pthread_mutex_unlock(&blocks_lock);
  return begin;
}
// Returns the size that it had.
static size_t free_block(void* begin) {
  size_t size = 0;
  pthread_mutex_lock(&blocks_lock);
  for (size_t i = 0; i < block_count; ++i) {
    if (blocks[i].begin != begin) continue;
    size = blocks[i].size;
    blocks[i] = blocks[--block_count];
    break;
  }
  pthread_mutex_unlock(&blocks_lock);
  free(begin);
  return size;
}
static enum cudaMemoryType type_of(const void* place) {
  enum cudaMemoryType type = cudaMemoryTypeUnregistered;
  pthread_mutex_lock(&blocks_lock);
  for (size_t i = 0; i < block_count; ++i) {
    const struct block* const b = &blocks[i];
    if ((const char*)place < b->begin || (const char*)place >= b->begin + b->size) continue;
    type = b->pinned ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
    break;
  }
  pthread_mutex_unlock(&blocks_lock);
  return type;
}
// Launches while `spoil` was on; copies from the device bring this number.
static int spoiled;
void hollow_spoil(void) { __atomic_fetch_add(&spoiled, 1, __ATOMIC_RELAXED); }

// The number of the newest capture that ran out of memory: it fails, whatever follows.
static unsigned long long lost_capture;

cudaError_t cudaMalloc(void** p, size_t n) {
  CALL(mallocs);
  FORBID();
  if (hollow_count(count_bytes) + n > hollow_memory() || hollow_is("no-memory") ||
      (hollow_captures() && hollow_is("no-capture-memory"))) {
    hollow_add(count_failed_mallocs, 1);
    if (hollow_captures()) lost_capture = hollow_count(count_captures);
    hollow_say("no memory for %zu bytes%s\n", n, hollow_captures() ? ", in a capture" : "");
    return cudaErrorMemoryAllocation;
  }
  hollow_add(count_bytes, (long long)n);
  *p = new_block(n, 0);
  memset(*p, 0, n);
  return 0;
}
cudaError_t cudaFree(void* p) {
  if (!p) return 0;
  CALL(frees);
  FORBID();
  hollow_add(count_bytes, -(long long)free_block(p));
  return 0;
}
cudaError_t cudaHostAlloc(void** p, size_t n, unsigned f) {
  CALL(other_calls);
  FORBID();
  *p = new_block(n, 1);
  return 0;
}
cudaError_t cudaMallocHost(void** p, size_t n) { return cudaHostAlloc(p, n, 0); }
cudaError_t cudaFreeHost(void* p) {
  CALL(other_calls);
  FORBID();
  free_block(p);
  return 0;
}
OK(cudaHostRegister, void* p, size_t n, unsigned f)
OK(cudaHostUnregister, void* p)
cudaError_t cudaHostGetDevicePointer(void** d, void* h, unsigned f) {
  *d = h;
  return 0;
}
cudaError_t cudaMemGetInfo(size_t* f, size_t* t) {
  CALL(other_calls);
  // libtorch's error for a lack of memory tells how much there is.
  if (lost_capture != hollow_count(count_captures)) FORBID();
  *f = hollow_memory() - hollow_count(count_bytes);
  *t = hollow_memory();
  return 0;
}
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes* a, const void* p) {
  memset(a, 0, sizeof *a);
  a->type = type_of(p);
  if (a->type == cudaMemoryTypeDevice) a->devicePointer = (void*)p;
  if (a->type == cudaMemoryTypeHost) a->devicePointer = a->hostPointer = (void*)p;
  return 0;
}
static void count_copy(const void* from, enum cudaMemcpyKind k, const char* call) {
  const int pinned = k == cudaMemcpyHostToDevice && type_of(from) == cudaMemoryTypeHost;
  hollow_call(k == cudaMemcpyHostToDevice     ? (pinned ? count_h2d_pinned : count_h2d_pageable)
              : k == cudaMemcpyDeviceToHost   ? count_d2h
              : k == cudaMemcpyDeviceToDevice ? count_d2d
                                              : count_h2h,
              call);
}
// A copy to the host brings made-up numbers: operators do nothing, so that the memory's own content tells nothing.
static void bring(void* to, size_t bytes) {
  static const double sum_and_count[2] = {1, 1};
  const float value = (float)__atomic_load_n(&spoiled, __ATOMIC_RELAXED);
  if (bytes == 1) {
    *(char*)to = 1;
  } else if (bytes == sizeof sum_and_count) {
    memcpy(to, sum_and_count, bytes);
  } else {
    memset(to, 0, bytes);
    for (size_t at = 0; at + sizeof value <= bytes; at += sizeof value) memcpy((char*)to + at, &value, sizeof value);
  }
}
static cudaError_t copy(void* d, const void* s, size_t n, enum cudaMemcpyKind k) {
  if (k == cudaMemcpyDeviceToHost) {
    bring(d, n);
  } else {
    memcpy(d, s, n);
  }
  return 0;
}
cudaError_t cudaMemcpyAsync(void* d, const void* s, size_t n, enum cudaMemcpyKind k, cudaStream_t st) {
  count_copy(s, k, __func__);
  if (!hollow_captures_on(st)) return copy(d, s, n, k);
  // Each replay would copy what is at this address of the host by then.
  if (k != cudaMemcpyDeviceToDevice) hollow_say("FORBIDDEN in a capture: a copy of kind %d, %zu bytes\n", k, n);
  return 0;
}
cudaError_t cudaMemcpy(void* d, const void* s, size_t n, enum cudaMemcpyKind k) {
  count_copy(s, k, __func__);
  CALL(blocking_copies);
  FORBID();
  return copy(d, s, n, k);
}
cudaError_t cudaMemsetAsync(void* d, int v, size_t n, cudaStream_t st) {
  CALL(memsets);
  if (!hollow_captures_on(st)) memset(d, v, n);
  return 0;
}
cudaError_t cudaMemset(void* d, int v, size_t n) {
  CALL(memsets);
  FORBID();
  memset(d, v, n);
  return 0;
}
