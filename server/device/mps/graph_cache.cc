#include "device/mps/graph_cache.h"

#include <ATen/ATen.h>
#include <ATen/detail/MPSHooksInterface.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/string_view.h"
#include "device/torch_version.h"

namespace permafrost::device {
namespace {

constexpr size_t kCountOffset = 24;
// The largest number that is accepted as a count. More graphs would take tens of gigabytes.
constexpr uint64_t kMostEntries = 10'000'000;
// The versions whose ATen/native/mps/OperationUtils.h was examined. In these, the map is the first member of
// MPSGraphCache, and the class has no virtual functions.
constexpr std::array<std::string_view, 1> kReadVersions{"2.13.0"};
constexpr char kInstanceSymbol[] = "_ZN2at6native3mps13MPSGraphCache15_instance_cacheE";
// The number of rows of the products that test the count. No step has such a shape.
constexpr int64_t kProbeRows = 1009;

}  // namespace

uint64_t ReadGraphEntries(const void* instance) {
  const char* object = nullptr;
  std::memcpy(static_cast<void*>(&object), instance, sizeof(object));
  if (object == nullptr) return 0;
  uint64_t count = 0;
  std::memcpy(&count, object + kCountOffset, sizeof(count));
  return count;
}

GraphEntriesProbe ProbeOfMps() {
  return {.version = LoadedTorchVersion(),
          .find = [] { return static_cast<const void*>(dlsym(RTLD_DEFAULT, kInstanceSymbol)); },
          .multiply =
              [](int64_t number) {
                const auto options = at::TensorOptions().dtype(at::kFloat).device(c10::kMPS);
                at::mm(at::ones({kProbeRows + number, 3}, options), at::ones({3, 5}, options)).to(at::kCPU);
              },
          .empty =
              [] {
                at::detail::getMPSHooks().deviceSynchronize();
                at::detail::getMPSHooks().emptyCache();
              }};
}

GraphEntries::GraphEntries(const GraphEntriesProbe& probe) : reason_(Try(probe)) {
  if (!reason_.empty()) instance_ = nullptr;
}

std::string GraphEntries::Try(const GraphEntriesProbe& probe) {
  if (std::ranges::find(kReadVersions, probe.version) == kReadVersions.end()) {
    return absl::StrCat("libtorch ", probe.version, ": its cache of graphs was read in ",
                        AbslView(kReadVersions.back()), " only");
  }
  instance_ = probe.find();
  if (instance_ == nullptr) return "this libtorch exports no MPSGraphCache";
  const auto differs = [](std::string_view what, uint64_t got, uint64_t want) {
    return absl::StrCat("the count was tried, and ", AbslView(what), " made it ", got, ", not ", want);
  };
  // The first product may make libtorch compile further graphs, so it is not counted.
  probe.multiply(0);
  const uint64_t before = ReadGraphEntries(instance_);
  if (before > kMostEntries) return absl::StrCat("the count was tried, and reads as ", before, ", which is none");
  probe.multiply(1);
  if (const uint64_t now = ReadGraphEntries(instance_); now != before + 1) {
    return differs("a matrix product of a new shape", now, before + 1);
  }
  probe.multiply(1);
  if (const uint64_t now = ReadGraphEntries(instance_); now != before + 1) {
    return differs("the same product again", now, before + 1);
  }
  probe.empty();
  if (const uint64_t now = ReadGraphEntries(instance_); now != 0) return differs("emptying the caches", now, 0);
  return "";
}

std::optional<int64_t> GraphEntries::Count() const {
  if (instance_ == nullptr) return std::nullopt;
  return static_cast<int64_t>(ReadGraphEntries(instance_));
}

}  // namespace permafrost::device
