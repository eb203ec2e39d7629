#include "device/cuda/cuda_module.h"

#include <dlfcn.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "device/cuda/cuda_module_version.h"

namespace permafrost::device {
namespace {

std::string LastLoaderError() {
  const char* const error = dlerror();
  return error == nullptr ? "no reason given" : error;
}

}  // namespace

absl::StatusOr<const CudaModule*> LoadCudaModuleFrom(const std::string& path) {
  // Global: libtorch finds its CUDA half by registries that the library's initialisers fill.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr)
    return absl::FailedPreconditionError(absl::StrCat("its module cannot be loaded: ", LastLoaderError()));
  const auto* const module = static_cast<const CudaModule*>(dlsym(library, kCudaModuleSymbol));
  if (module == nullptr) return absl::FailedPreconditionError(absl::StrCat(path, ": ", LastLoaderError()));
  if (std::string_view(module->version) != kCudaModuleVersion) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is of version ", module->version,
                                                      ", and this program of ", kCudaModuleVersion,
                                                      ": install both from one build"));
  }
  return module;
}

absl::StatusOr<const CudaModule*> LoadCudaModule() {
  static const absl::StatusOr<const CudaModule*> loaded = LoadCudaModuleFrom(kCudaModuleFile);
  return loaded;
}

}  // namespace permafrost::device
