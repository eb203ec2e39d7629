#include "device/cuda/cuda_libraries.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace permafrost::device {
namespace {

// Returns the dynamic loader's last error, or `otherwise` if there is none.
std::string LastLoaderError(const std::string& otherwise = "no reason given") {
  const char* const error = dlerror();
  return error == nullptr ? otherwise : error;
}

constexpr int kNoDevice = 100;  // CUDA_ERROR_NO_DEVICE

std::string VersionText(int version) { return absl::StrCat(version / 1000, ".", version % 1000 / 10); }

absl::Status NoCard() {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible != nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("NVIDIA's driver shows no card to this process; CUDA_VISIBLE_DEVICES is '", visible, "'"));
  }
  return absl::FailedPreconditionError("NVIDIA's driver finds no card (nvidia-smi lists them)");
}

}  // namespace

absl::StatusOr<CudaDriver> LoadCudaDriver(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("NVIDIA's driver cannot be loaded: ", LastLoaderError(path)));
  }
  CudaDriver driver;
  const auto find = [library]<class Function>(Function*& place, const char* name) {
    place = reinterpret_cast<Function*>(dlsym(library, name));
    return place != nullptr;
  };
  if (!find(driver.init, "cuInit") || !find(driver.version, "cuDriverGetVersion") ||
      !find(driver.cards, "cuDeviceGetCount")) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is no driver of NVIDIA: it lacks ",
                                                      driver.init == nullptr      ? "cuInit"
                                                      : driver.version == nullptr ? "cuDriverGetVersion"
                                                                                  : "cuDeviceGetCount"));
  }
  return driver;
}

absl::StatusOr<int> CountCards(const CudaDriver& driver) {
  const int begun = driver.init(0);
  if (begun == kNoDevice) return NoCard();
  if (begun != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("NVIDIA's driver does not begin: error ", begun, " of cuInit (nvidia-smi tells more)"));
  }
  int cards = 0;
  if (driver.cards(&cards) != 0 || cards <= 0) return NoCard();
  return cards;
}

absl::Status CheckDriverVersion(const CudaDriver& driver, int wanted) {
  int version = 0;
  // A driver serves programs made for its own major version of CUDA, whatever their minor version, and for older
  // major versions.
  if (driver.version(&version) != 0 || version / 1000 >= wanted / 1000) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("NVIDIA's driver is too old: it serves CUDA ", VersionText(version),
                                                    ", and libtorch needs ", wanted / 1000, ".0 or newer"));
}

absl::StatusOr<const CudaModule*> LoadCudaModuleFrom(const std::string& path) {
  // RTLD_GLOBAL is needed, since libtorch finds its CUDA half through registries that initialisers of the CUDA half
  // fill.
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
