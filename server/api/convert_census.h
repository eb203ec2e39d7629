// Censuses on the wire.
// Threads: pure functions.
#pragma once

#include "absl/status/statusor.h"
#include "graphcache/census.h"
#include "permafrost/v1/census.pb.h"

namespace permafrost::api {

v1::CensusGraphCacheResponse CensusToWire(const graphcache::Census& census);
// Errors: InvalidArgument with a violation of torch_release.
absl::StatusOr<graphcache::TorchRelease> TorchReleaseFromWire(const std::string& release);

}  // namespace permafrost::api
