// cuBLAS on a hollow GPU (hollow.h): products that compute nothing.
#include <stdlib.h>
#include <string.h>

#include "hollow.h"

#define BLAS(name) \
  int name() { return 0; }
static int new_handle(void** h) {
  *h = calloc(1, 4096);
  return 0;
}
int cublasCreate_v2(void** h) { return new_handle(h); }
int cublasLtCreate(void** h) { return new_handle(h); }
static int gemm(void) {
  hollow_call(count_kernels, "a product of cuBLAS");
  if (hollow_captures()) hollow_kernel_in_capture();
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
BLAS(cublasLtDestroy)
BLAS(cublasSetStream_v2)
BLAS(cublasSetWorkspace_v2)
BLAS(cublasSetMathMode)
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
BLAS(cublasLtMatrixLayoutDestroy)
BLAS(cublasLtMatmulPreferenceDestroy)
BLAS(cublasLtMatmulDescSetAttribute)
BLAS(cublasLtMatrixLayoutSetAttribute)
BLAS(cublasLtMatmulPreferenceSetAttribute)
int cublasLtMatmulAlgoGetHeuristic(void* h, void* d, void* a, void* b, void* c, void* e, void* p, int wanted,
                                   char* results, int* n) {
  memset(results, 0, 64);
  *n = 1;
  return 0;
}
