// Preloaded into a daemon under test (LD_PRELOAD). While the file named by PERMAFROST_TEST_FAIL_DEVICE exists,
// reading a value of a tensor fails as on CUDA after an illegal memory access.
#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>

namespace {

constexpr int kIllegalAddress = 700;  // cudaErrorIllegalAddress

}  // namespace

// Replaces libtorch's function, which the daemon finds by this symbol.
at::Scalar at::_ops::item::call(const at::Tensor& self) {
  // In this scope, a plain `std` would name an operator.
  const char* path = ::std::getenv("PERMAFROST_TEST_FAIL_DEVICE");
  if (path != nullptr && access(path, F_OK) == 0) {
    throw c10::AcceleratorError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, kIllegalAddress,
                                "CUDA error: an illegal memory access was encountered\nand a page of advice");
  }
  using Call = at::Scalar (*)(const at::Tensor&);
  static const auto next = reinterpret_cast<Call>(dlsym(RTLD_NEXT, "_ZN2at4_ops4item4callERKNS_6TensorE"));
  return next(self);
}
