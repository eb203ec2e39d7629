// Compares two versions of libtorch: that of the headers with which this program was built, and that of the loaded
// library.
// Threads: safe anywhere.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace permafrost::device {

// Returns the version of the loaded library, such as "2.13.0".
std::string LoadedTorchVersion();

// Checks that the library has the version of the headers, and that capturing steps was tested with this version.
// Errors: FailedPrecondition, naming both versions.
absl::Status CheckTorchVersions(std::string_view headers, std::string_view library);
// Calls CheckTorchVersions with the versions of this process's headers and library.
absl::Status CheckTorchVersion();

}  // namespace permafrost::device
