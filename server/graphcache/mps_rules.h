// Tells which operators add an entry to libtorch's cache of compiled MPS graphs, by release. Source: the kernels of
// PyTorch's aten/src/ATen/native/mps, where an entry is a call of LookUpOrCreateCachedGraph; pytorch#187455 lists those
// that are left. Matrix kernels that linear keeps by shape are in another cache (MPSKernelCache), of a few bytes each,
// and not counted.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/enum_names.h"

namespace permafrost::graphcache {

// A release of libtorch.
enum class TorchRelease { k2_13, k2_15 };
inline constexpr EnumNames<TorchRelease, 2> kTorchReleaseNames{
    {{{TorchRelease::k2_13, "2.13"}, {TorchRelease::k2_15, "2.15"}}}};

// A tensor among a call's arguments.
struct CallTensor {
  std::string type;  // empty: the argument is none
  std::vector<int64_t> sizes;
  bool contiguous = true;
  bool operator==(const CallTensor&) const = default;
};

// A call of an operator that has a kernel on MPS.
struct OpCall {
  std::string op;  // "aten::mm"
  std::vector<CallTensor> tensors;
  std::vector<int64_t> integers;  // arguments, those of lists too
  std::string rest;               // all other arguments, as text
};

// Entries that a call adds whose key is new. nullopt: there is no rule for the operator.
std::optional<int64_t> EntriesOf(const OpCall& call, TorchRelease release);

}  // namespace permafrost::graphcache
