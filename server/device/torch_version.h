// Tells which libtorch this is: the one whose headers it was built with, and the one that is loaded.
// Threads: safe anywhere.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace permafrost::device {

// The version of the library that is loaded, as "2.13.0".
std::string LoadedTorchVersion();

// Errors: FailedPrecondition, naming both versions, where the library is not of the headers' version, or the version is
// none that the capture of steps was tested with.
absl::Status CheckTorchVersions(std::string_view headers, std::string_view library);
// The same for this process.
absl::Status CheckTorchVersion();

}  // namespace permafrost::device
