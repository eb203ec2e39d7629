// The CUDA runtime but for memory, and the call of the driver that libtorch makes, on a hollow GPU (hollow.h).
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "hollow.h"
#undef cudaGetDeviceProperties

// The capture that runs; none while `capturing` is null.
static cudaStream_t capturing;
static pthread_t capturer;
static enum cudaStreamCaptureMode capture_mode;
static unsigned long long kernels_in_capture;
static __thread enum cudaStreamCaptureMode mode_here;

int hollow_captures(void) { return capturing != NULL; }
int hollow_captures_on(const void* stream) { return capturing && stream == capturing; }
void hollow_kernel_in_capture(void) { kernels_in_capture++; }
void hollow_forbid(const char* call) {
  const int capturers = pthread_equal(pthread_self(), capturer);
  if (capturing && mode_here != cudaStreamCaptureModeRelaxed &&
      (capture_mode == cudaStreamCaptureModeGlobal || capturers))
    hollow_say("FORBIDDEN in a capture: %s, by %s\n", call, capturers ? "its thread" : "another thread");
}

int cuDriverGetVersion(int* version);

#define OK(name, ...) \
  cudaError_t name(__VA_ARGS__) { return cudaSuccess; }
static int cards(void) {
  const char* const number = getenv("HOLLOW_CARDS");
  return number ? atoi(number) : 1;
}
cudaError_t cudaGetDeviceCount(int* n) {
  *n = cards();
  return *n == 0 ? cudaErrorNoDevice : cudaSuccess;
}
cudaError_t cudaGetDevice(int* d) {
  *d = 0;
  return 0;
}
OK(cudaSetDevice, int d)
cudaError_t cudaDriverGetVersion(int* v) { return cuDriverGetVersion(v); }
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp* p, int d) {
  memset(p, 0, sizeof *p);
  strcpy(p->name, "hollow");
  p->totalGlobalMem = hollow_memory();
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
static cudaError_t new_stream(cudaStream_t* s) {
  hollow_call(count_other_calls, "cudaStreamCreate");
  *s = (cudaStream_t)malloc(16);
  return 0;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned f, int p) { return new_stream(s); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned f) { return new_stream(s); }
cudaError_t cudaStreamCreate(cudaStream_t* s) { return new_stream(s); }
cudaError_t cudaStreamDestroy(cudaStream_t s) {
  free(s);
  return 0;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  CALL(stream_syncs);
  FORBID();
  return 0;
}
cudaError_t cudaStreamQuery(cudaStream_t s) {
  CALL(other_calls);
  FORBID();
  return 0;
}
OK(cudaStreamWaitEvent, cudaStream_t s, cudaEvent_t e, unsigned f)
cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus* st) {
  *st = hollow_captures_on(s) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return 0;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t s, enum cudaStreamCaptureStatus* st, unsigned long long* id,
                                     cudaGraph_t* g, const cudaGraphNode_t** d, const cudaGraphEdgeData** e,
                                     size_t* n) {
  const int on = hollow_captures_on(s);
  *st = on ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  if (id) *id = on ? hollow_count(count_captures) : 0;
  if (n) *n = 0;
  return 0;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode m) {
  CALL(captures);
  capturing = s;
  capturer = pthread_self();
  capture_mode = m;
  kernels_in_capture = 0;
  hollow_say("capture %llu begins, mode %d, stream %p\n", hollow_count(count_captures), m, (void*)s);
  return 0;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t* g) {
  CALL(other_calls);
  capturing = 0;
  if (hollow_is("invalidate")) {
    *g = 0;
    hollow_say("capture %llu was invalidated\n", hollow_count(count_captures));
    return cudaErrorStreamCaptureInvalidated;
  }
  *g = (cudaGraph_t)malloc(16);
  hollow_say("capture %llu ends: %llu kernels\n", hollow_count(count_captures), kernels_in_capture);
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
  CALL(graphs);
  hollow_say("a graph is made, %llu alive\n", hollow_count(count_graphs));
  return 0;
}
cudaError_t cudaGraphDestroy(cudaGraph_t g) {
  free(g);
  return 0;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x) {
  CALL(other_calls);
  hollow_add(count_graphs, -1);
  hollow_say("a graph is destroyed, %llu alive\n", hollow_count(count_graphs));
  free(x);
  return 0;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s) {
  CALL(launches);
  if (hollow_is("spoil")) hollow_spoil();
  hollow_note_launch();
  return 0;
}
static cudaError_t new_event(cudaEvent_t* e) {
  *e = (cudaEvent_t)malloc(16);
  return 0;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned f) { return new_event(e); }
cudaError_t cudaEventCreate(cudaEvent_t* e) { return new_event(e); }
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  CALL(other_calls);
  return 0;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned f) { return cudaEventRecord(e, s); }
cudaError_t cudaEventQuery(cudaEvent_t e) {
  CALL(other_calls);
  FORBID();
  return hollow_is("behind") ? cudaErrorNotReady : cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  CALL(event_syncs);
  FORBID();
  return 0;
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
  free(e);
  return 0;
}
cudaError_t cudaEventElapsedTime(float* t, cudaEvent_t a, cudaEvent_t b) {
  *t = 1;
  return 0;
}
cudaError_t cudaDeviceSynchronize(void) {
  CALL(device_syncs);
  FORBID();
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
  CALL(kernels);
  if (hollow_captures_on(s))
    kernels_in_capture++;
  else if (capturing && pthread_equal(pthread_self(), capturer))
    hollow_say("FORBIDDEN in a capture: a kernel on another stream, which the graph would not hold\n");
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
// Kernels that the daemon compiles itself are compiled for real, and do nothing here, as all others.
cudaError_t cudaLibraryLoadData(cudaLibrary_t* l, const void* code, enum cudaJitOption* jo, void** jv, unsigned jn,
                                enum cudaLibraryOption* lo, void** lv, unsigned ln) {
  *l = (cudaLibrary_t)code;
  return 0;
}
cudaError_t cudaLibraryGetKernel(cudaKernel_t* k, cudaLibrary_t l, const char* name) {
  *k = (cudaKernel_t)name;
  return 0;
}
OK(cudaLibraryUnload, cudaLibrary_t l)
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
// NVRTC asks the driver for tables that are not documented, and does without.
int cuGetExportTable(const void** table, const void* id) {
  *table = NULL;
  return 500;  // CUDA_ERROR_NOT_FOUND
}
// The driver: libtorch asks whether there is a context, and Permafrost what is there (device/cuda/cuda_libraries.h).
int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return 0;
}
int cuCtxGetCurrent(void** context) {
  static int own;
  *context = &own;
  return 0;
}
int cuInit(unsigned flags) { return cards() == 0 ? cudaErrorNoDevice : 0; }
int cuDriverGetVersion(int* version) {
  const char* const own = getenv("HOLLOW_DRIVER");
  *version = own ? atoi(own) : 13000;
  return 0;
}
int cuDeviceGetCount(int* n) {
  *n = cards();
  return 0;
}
