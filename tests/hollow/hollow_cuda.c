// A GPU that is hollow: libtorch's CUDA half runs on it, with host memory for the device's, copies that copy and
// kernels that do nothing. Preloaded (LD_PRELOAD) where there is no GPU, it shows the control flow of a CUDA backend
// (allocations, streams, captures, pools, replays, copies, synchronisations) and no values: a copy of one byte from the
// device brings 1, so that allclose and equal say yes.
// It must also be found as libcuda.so.1, which libtorch opens by name. Threads: counts are not exact beside each other.
//
// HOLLOW_LOG=FILE     captures, instantiations, what a capture forbids; at the end the counts
// HOLLOW_INVALIDATE=N the Nth capture ends with an error
// HOLLOW_MEMORY=BYTES device memory (8 GiB); an allocation beyond it fails
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#undef cudaGetDeviceProperties
static FILE* log_file;
static __thread enum cudaStreamCaptureMode mode_here;
static cudaStream_t capturing;
static unsigned long long capture_id, kernels_in_capture, launches, copies[5], graphs_alive, mallocs, syncs;
static size_t used;
static pthread_t capturer;
static enum cudaStreamCaptureMode capture_mode;
static void say(const char* format, ...) {
  if (!log_file) {
    const char* name = getenv("HOLLOW_LOG");
    if (!name || !(log_file = fopen(name, "a"))) return;
  }
  va_list list;
  va_start(list, format);
  vfprintf(log_file, format, list);
  va_end(list);
  fflush(log_file);
}
static void forbidden(const char* call) {
  if (capturing && mode_here != cudaStreamCaptureModeRelaxed &&
      (capture_mode == cudaStreamCaptureModeGlobal || pthread_self() == capturer))
    say("FORBIDDEN during a capture: %s%s\n", call, pthread_self() == capturer ? "" : ", by another thread");
}
static size_t memory(void) {
  const char* bytes = getenv("HOLLOW_MEMORY");
  return bytes ? strtoull(bytes, 0, 10) : 8ull << 30;
}
#define OK(name, ...) \
  cudaError_t name(__VA_ARGS__) { return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* n) {
  *n = 1;
  return 0;
}
cudaError_t cudaGetDevice(int* d) {
  *d = 0;
  return 0;
}
OK(cudaSetDevice, int d)
cudaError_t cudaDriverGetVersion(int* v) {
  *v = 13000;
  return 0;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp* p, int d) {
  memset(p, 0, sizeof *p);
  strcpy(p->name, "hollow");
  p->totalGlobalMem = memory();
  p->major = 9;
  p->minor = 0;
  p->multiProcessorCount = 132;
  p->warpSize = 32;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsPerMultiProcessor = 2048;
  p->maxGridSize[0] = 2147483647;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->sharedMemPerBlock = 49152;
  p->sharedMemPerMultiprocessor = 233472;
  p->regsPerBlock = 65536;
  p->regsPerMultiprocessor = 65536;
  p->maxBlocksPerMultiProcessor = 32;
  p->sharedMemPerBlockOptin = 232448;
  p->l2CacheSize = 50 << 20;
  p->textureAlignment = 512;
  p->concurrentKernels = 1;
  p->unifiedAddressing = 1;
  p->canMapHostMemory = 1;
  return 0;
}
cudaError_t cudaDeviceGetAttribute(int* v, enum cudaDeviceAttr a, int d) {
  *v = a == cudaDevAttrComputeCapabilityMajor         ? 9
       : a == cudaDevAttrComputeCapabilityMinor       ? 0
       : a == cudaDevAttrMultiProcessorCount          ? 132
       : a == cudaDevAttrMaxThreadsPerBlock           ? 1024
       : a == cudaDevAttrWarpSize                     ? 32
       : a == cudaDevAttrMaxSharedMemoryPerBlock      ? 49152
       : a == cudaDevAttrMaxSharedMemoryPerBlockOptin ? 232448
       : a == cudaDevAttrMaxThreadsPerMultiProcessor  ? 2048
       : a == cudaDevAttrMaxGridDimX                  ? 2147483647
       : a == cudaDevAttrMaxGridDimY                  ? 65535
                                                      : 1;
  return 0;
}
// Each block has its size before it.
cudaError_t cudaMalloc(void** p, size_t n) {
  forbidden("cudaMalloc");
  if (used + n > memory()) {
    say("no memory for %zu bytes\n", n);
    return cudaErrorMemoryAllocation;
  }
  mallocs++;
  used += n;
  char* block = aligned_alloc(512, 512 + ((n + 511) & ~511ull));
  *(size_t*)block = n;
  *p = block + 512;
  memset(*p, 0, n);
  return 0;
}
cudaError_t cudaFree(void* p) {
  if (!p) return 0;
  forbidden("cudaFree");
  used -= *(size_t*)((char*)p - 512);
  free((char*)p - 512);
  return 0;
}
cudaError_t cudaHostAlloc(void** p, size_t n, unsigned f) {
  *p = aligned_alloc(512, (n + 511) & ~511ull);
  return 0;
}
cudaError_t cudaMallocHost(void** p, size_t n) { return cudaHostAlloc(p, n, 0); }
cudaError_t cudaFreeHost(void* p) {
  free(p);
  return 0;
}
OK(cudaHostRegister, void* p, size_t n, unsigned f)
OK(cudaHostUnregister, void* p) cudaError_t cudaHostGetDevicePointer(void** d, void* h, unsigned f) {
  *d = h;
  return 0;
}
cudaError_t cudaMemGetInfo(size_t* f, size_t* t) {
  if (capturing)
    say("cudaMemGetInfo during a capture, by %s\n", pthread_self() == capturer ? "its thread" : "another thread");
  *f = memory() - used;
  *t = memory();
  return 0;
}
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes* a, const void* p) {
  memset(a, 0, sizeof *a);
  a->type = cudaMemoryTypeUnregistered;
  return 0;
}
cudaError_t cudaMemcpyAsync(void* d, const void* s, size_t n, enum cudaMemcpyKind k, cudaStream_t st) {
  copies[k]++;
  if (capturing && st == capturing && k != cudaMemcpyDeviceToDevice)
    say("copy of kind %d, %zu bytes, in a capture\n", k, n);
  if (capturing && st == capturing) return 0;
  if (k == cudaMemcpyDeviceToHost && n == 1) {
    *(char*)d = 1;
    return 0;
  }
  memcpy(d, s, n);
  return 0;
}
cudaError_t cudaMemcpy(void* d, const void* s, size_t n, enum cudaMemcpyKind k) {
  return cudaMemcpyAsync(d, s, n, k, 0);
}
cudaError_t cudaMemsetAsync(void* d, int v, size_t n, cudaStream_t st) {
  if (!(capturing && st == capturing)) memset(d, v, n);
  return 0;
}
cudaError_t cudaMemset(void* d, int v, size_t n) {
  memset(d, v, n);
  return 0;
}
static cudaError_t new_stream(cudaStream_t* s) {
  *s = (cudaStream_t)malloc(16);
  return 0;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned f, int p) { return new_stream(s); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned f) { return new_stream(s); }
cudaError_t cudaStreamCreate(cudaStream_t* s) { return new_stream(s); }
OK(cudaStreamDestroy, cudaStream_t s)
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  forbidden("cudaStreamSynchronize");
  syncs++;
  return 0;
}
cudaError_t cudaStreamQuery(cudaStream_t s) {
  forbidden("cudaStreamQuery");
  return 0;
}
OK(cudaStreamWaitEvent, cudaStream_t s, cudaEvent_t e, unsigned f)
cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus* st) {
  *st = capturing && s == capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return 0;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t s, enum cudaStreamCaptureStatus* st, unsigned long long* id,
                                     cudaGraph_t* g, const cudaGraphNode_t** d, const cudaGraphEdgeData** e,
                                     size_t* n) {
  const int on = capturing && s == capturing;
  *st = on ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  if (id) *id = on ? capture_id : 0;
  if (n) *n = 0;
  return 0;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode m) {
  capturing = s;
  capturer = pthread_self();
  capture_mode = m;
  capture_id++;
  kernels_in_capture = 0;
  say("capture %llu begins, mode %d, stream %p\n", capture_id, m, (void*)s);
  return 0;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t* g) {
  if (getenv("HOLLOW_INVALIDATE") && capture_id == strtoull(getenv("HOLLOW_INVALIDATE"), 0, 10)) {
    capturing = 0;
    *g = 0;
    say("capture %llu was invalidated\n", capture_id);
    return cudaErrorStreamCaptureInvalidated;
  }
  capturing = 0;
  *g = (cudaGraph_t)malloc(16);
  say("capture %llu ends: %llu kernels\n", capture_id, kernels_in_capture);
  return 0;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode* m) {
  enum cudaStreamCaptureMode before = mode_here;
  mode_here = *m;
  *m = before;
  return 0;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t* x, size_t* n) {
  *n = kernels_in_capture;
  return 0;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* x, cudaGraph_t g, unsigned long long f) {
  *x = (cudaGraphExec_t)malloc(16);
  say("instantiated, %llu alive\n", ++graphs_alive);
  return 0;
}
OK(cudaGraphDestroy, cudaGraph_t g)
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x) {
  say("destroyed, %llu alive\n", --graphs_alive);
  return 0;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s) {
  launches++;
  return 0;
}
static cudaError_t new_event(cudaEvent_t* e) {
  *e = (cudaEvent_t)malloc(16);
  return 0;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned f) { return new_event(e); }
cudaError_t cudaEventCreate(cudaEvent_t* e) { return new_event(e); }
OK(cudaEventRecord, cudaEvent_t e, cudaStream_t s)
OK(cudaEventRecordWithFlags, cudaEvent_t e, cudaStream_t s, unsigned f) cudaError_t cudaEventQuery(cudaEvent_t e) {
  forbidden("cudaEventQuery");
  return 0;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  forbidden("cudaEventSynchronize");
  syncs++;
  return 0;
}
OK(cudaEventDestroy, cudaEvent_t e)
cudaError_t cudaEventElapsedTime(float* t, cudaEvent_t a, cudaEvent_t b) {
  *t = 1;
  return 0;
}
cudaError_t cudaDeviceSynchronize(void) {
  forbidden("cudaDeviceSynchronize");
  syncs++;
  return 0;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* a, int* b) {
  *a = 0;
  *b = -5;
  return 0;
}
cudaError_t cudaDeviceCanAccessPeer(int* c, int a, int b) {
  *c = 0;
  return 0;
}
cudaError_t cudaGetLastError(void) { return 0; }
cudaError_t cudaPeekAtLastError(void) { return 0; }
cudaError_t cudaLaunchKernel(const void* f, dim3 g, dim3 b, void** a, size_t sh, cudaStream_t s) {
  if (capturing && s == capturing)
    kernels_in_capture++;
  else if (capturing && pthread_self() == capturer)
    say("a kernel of the capture's thread on another stream\n");
  return 0;
}
cudaError_t __cudaGetKernel(void** k, const void* f) {
  *k = (void*)f;
  return 0;
}
cudaError_t __cudaLaunchKernel(void* k, dim3 g, dim3 b, void** a, size_t sh, cudaStream_t s) {
  return cudaLaunchKernel(k, g, b, a, sh, s);
}
cudaError_t __cudaLaunchKernel_ptsz(void* k, dim3 g, dim3 b, void** a, size_t sh, cudaStream_t s) {
  return cudaLaunchKernel(k, g, b, a, sh, s);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* c, const void* f, void** a) {
  return cudaLaunchKernel(f, c->gridDim, c->blockDim, a, 0, c->stream);
}
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes* a, const void* f) {
  memset(a, 0, sizeof *a);
  a->maxThreadsPerBlock = 1024;
  a->numRegs = 32;
  a->ptxVersion = a->binaryVersion = 90;
  return 0;
}
OK(cudaFuncSetAttribute, const void* f, enum cudaFuncAttribute a, int v)
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* n, const void* f, int b, size_t s) {
  *n = 2;
  return 0;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* n, const void* f, int b, size_t s, unsigned x) {
  *n = 2;
  return 0;
}
__attribute__((destructor)) static void end(void) {
  if (getenv("HOLLOW_LOG"))
    say("graph launches %llu, cudaMalloc %llu, syncs %llu, copies H2D %llu D2H %llu D2D %llu\n", launches, mallocs,
        syncs, copies[1], copies[2], copies[3]);
}
// cuBLAS
#define BLAS(name) \
  int name() { return 0; }
static int new_handle(void** h) {
  *h = calloc(1, 4096);
  return 0;
}
int cublasCreate_v2(void** h) { return new_handle(h); }
int cublasLtCreate(void** h) { return new_handle(h); }
static int gemm(void) {
  if (capturing) kernels_in_capture++;
  return 0;
}
int cublasGetMathMode(void* h, int* m) {
  *m = 0;
  return 0;
}
int cublasGetPointerMode_v2(void* h, int* m) {
  *m = 0;
  return 0;
}
BLAS(cublasDestroy_v2)
BLAS(cublasLtDestroy) BLAS(cublasSetStream_v2) BLAS(cublasSetWorkspace_v2) BLAS(cublasSetMathMode)
    BLAS(cublasSetPointerMode_v2) BLAS(cublasSetSmCountTarget) BLAS(cublasSetEmulationStrategy) int cublasSgemm_v2() {
  return gemm();
}
int cublasGemmEx() { return gemm(); }
int cublasGemmStridedBatchedEx() { return gemm(); }
int cublasSgemmStridedBatched() { return gemm(); }
int cublasSgemv_v2() { return gemm(); }
int cublasSdot_v2() { return gemm(); }
int cublasLtMatmul() { return gemm(); }
int cublasLtMatmulDescCreate(void** d, int a, int b) { return new_handle(d); }
int cublasLtMatrixLayoutCreate(void** d, int t, unsigned long r, unsigned long c, long ld) { return new_handle(d); }
int cublasLtMatmulPreferenceCreate(void** d) { return new_handle(d); }
int cublasLtMatmulDescInit_internal(void* d, size_t n, int a, int b) {
  memset(d, 0, n);
  return 0;
}
int cublasLtMatrixLayoutInit_internal(void* d, size_t n, int t, unsigned long r, unsigned long c, long ld) {
  memset(d, 0, n);
  return 0;
}
int cublasLtMatmulPreferenceInit_internal(void* d, size_t n) {
  memset(d, 0, n);
  return 0;
}
BLAS(cublasLtMatmulDescDestroy)
BLAS(cublasLtMatrixLayoutDestroy) BLAS(cublasLtMatmulPreferenceDestroy) BLAS(cublasLtMatmulDescSetAttribute)
    BLAS(cublasLtMatrixLayoutSetAttribute)
        BLAS(cublasLtMatmulPreferenceSetAttribute) int cublasLtMatmulAlgoGetHeuristic(void* h, void* d, void* a,
                                                                                      void* b, void* c, void* e,
                                                                                      void* p, int wanted,
                                                                                      char* results, int* n) {
  memset(results, 0, 64);
  *n = 1;
  return 0;
}
// The driver, which libtorch asks whether a device has a context.
int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return 0;
}
