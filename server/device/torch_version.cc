#include "device/torch_version.h"

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/string_view.h"

namespace permafrost::device {
namespace {

// Versions without a build suffix such as "+cpu".
constexpr std::array<std::string_view, 2> kTestedVersions{"2.11.0", "2.13.0"};

}  // namespace

std::string LoadedTorchVersion() {
  // The highest three bytes are major, minor and patch.
  const uint64_t version = aoti_torch_abi_version();
  return absl::StrCat((version >> 56) & 0xFF, ".", (version >> 48) & 0xFF, ".", (version >> 40) & 0xFF);
}

absl::Status CheckTorchVersions(std::string_view headers, std::string_view library) {
  headers = headers.substr(0, headers.find('+'));
  if (headers != library) {
    return absl::FailedPreconditionError(
        absl::StrCat("libtorch ", AbslView(library), " is loaded, but this program was built with the headers of ",
                     AbslView(headers), ": run it with the library of that version, or build it again"));
  }
  if (std::ranges::find(kTestedVersions, library) == kTestedVersions.end()) {
    return absl::FailedPreconditionError(absl::StrCat("libtorch ", AbslView(library),
                                                      ": capture of steps was tested with ",
                                                      AbslView(kTestedVersions.back()), "; build with that version"));
  }
  return absl::OkStatus();
}

absl::Status CheckTorchVersion() { return CheckTorchVersions(TORCH_VERSION, LoadedTorchVersion()); }

}  // namespace permafrost::device
