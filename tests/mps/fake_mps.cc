#include "fake_mps.h"

#include <ATen/ATen.h>
#include <ATen/detail/MPSHooksInterface.h>
#include <ATen/record_function.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <array>
#include <functional>
#include <mutex>
#include <optional>
#include <sstream>
#include <string_view>
#include <thread>
#include <unordered_map>

#include "device/cpu/storage.h"
#include "device/mps/mps_backend.h"

// Has the layout of ATen/native/mps/OperationUtils.h in libtorch 2.13.
namespace at::native::mps {

struct MPSCachedGraph;

struct MPSGraphCache {
  struct CacheEntry {
    MPSCachedGraph* graph = nullptr;
    std::string key;
  };
  static MPSGraphCache* _instance_cache;
  std::unordered_map<uint64_t, CacheEntry> cache_;
  void* queue_ = nullptr;
};

MPSGraphCache* MPSGraphCache::_instance_cache = nullptr;

}  // namespace at::native::mps

namespace permafrost::device {
namespace {

using at::native::mps::MPSGraphCache;

// The operators of a GNN's step that compile one graph per shape in libtorch 2.13. Operators of this kind that no
// step here uses are left out.
constexpr std::array<std::string_view, 17> kGraphOperators{"aten::mm",
                                                           "aten::addmm",
                                                           "aten::bmm",
                                                           "aten::linear_backward",
                                                           "aten::threshold_backward",
                                                           "aten::native_batch_norm",
                                                           "aten::native_batch_norm_backward",
                                                           "aten::native_layer_norm_backward",
                                                           "aten::_softmax",
                                                           "aten::_log_softmax",
                                                           "aten::_log_softmax_backward_data",
                                                           "aten::nll_loss_forward",
                                                           "aten::mse_loss",
                                                           "aten::sgn",
                                                           "aten::where",
                                                           "aten::index_select",
                                                           "aten::index_add"};

struct State {
  std::mutex mutex;
  std::optional<std::thread::id> owner;
  std::vector<std::string> calls, violations;
  int64_t driver = 0, graph_bytes = 0, recommended_max = int64_t{16} << 30;
  bool kept_graphs = false, leak = false, fault = false;
  int64_t leaked = 0;
  FakeMps::Copies copies;
};

State& TheState() {
  static auto& state = *new State();
  return state;
}

void Violate(State& state, std::string line) {
  if (state.violations.size() < 20) state.violations.push_back(std::move(line));
}

// Records that something uses the device, and checks the rules for that.
void NoteUse(State& state, const char* what) {
  const std::thread::id self = std::this_thread::get_id();
  if (!state.owner) state.owner = self;
  if (*state.owner != self) Violate(state, std::string(what) + " on a second thread");
  if (AutoreleasePool::depth() == 0) Violate(state, std::string(what) + " outside of an autorelease pool");
}

void Note(State& state, const char* call) {
  if (call != std::string_view("op") || state.calls.empty() || state.calls.back() != call)
    state.calls.emplace_back(call);
}

// Writes into the tensors directly, because the stand-in's tensors are in host memory.
void SpoilGradients(const at::RecordFunction& optimizer) {
  for (const at::Tensor& gradient : optimizer.inputs()[1].toTensorVector()) {
    auto* const values = static_cast<float*>(gradient.storage().mutable_data()) + gradient.storage_offset();
    for (int64_t i = 0; i < gradient.numel(); ++i) values[i] *= 1.01F;
  }
}

void NoteCopy(State& state, const at::RecordFunction& call) {
  if (call.name() == std::string_view("aten::_local_scalar_dense")) ++state.copies.to_host;
  if (call.name() != std::string_view("aten::copy_")) return;
  const bool to_device = call.inputs()[0].toTensor().is_mps(), from_device = call.inputs()[1].toTensor().is_mps();
  if (to_device && !from_device) {
    ++state.copies.to_device;
    if (!call.inputs()[2].toBool()) ++state.copies.waited_for;
  }
  if (from_device && !to_device) ++state.copies.to_host;
}

std::unique_ptr<at::ObserverContext> OnOperator(const at::RecordFunction& call) {
  bool on_mps = false;
  std::ostringstream key;
  key << call.name();
  const auto add = [&](const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    on_mps = on_mps || tensor.is_mps();
    key << ' ' << tensor.scalar_type() << tensor.sizes();
  };
  for (const c10::IValue& input : call.inputs()) {
    if (input.isTensor()) {
      add(input.toTensor());
    } else if (input.isTensorList()) {
      for (const at::Tensor& tensor : input.toTensorVector()) add(tensor);
    }
  }
  if (!on_mps) return nullptr;
  State& state = TheState();
  const std::scoped_lock lock(state.mutex);
  NoteUse(state, call.name());
  Note(state, "op");
  NoteCopy(state, call);
  const bool optimizer = call.name() == std::string_view("aten::_fused_adam_");
  if (optimizer && state.fault) SpoilGradients(call);
  const bool leaks = optimizer && state.leak;
  if (leaks) key << ++state.leaked;
  if (leaks || std::ranges::find(kGraphOperators, std::string_view(call.name())) != kGraphOperators.end()) {
    if (MPSGraphCache::_instance_cache == nullptr) MPSGraphCache::_instance_cache = new MPSGraphCache();
    MPSGraphCache::_instance_cache->cache_[std::hash<std::string>()(key.str())] = {.graph = nullptr, .key = key.str()};
  }
  return nullptr;
}

int64_t GraphsNow() {
  const MPSGraphCache* const cache = MPSGraphCache::_instance_cache;
  return cache == nullptr ? 0 : static_cast<int64_t>(cache->cache_.size());
}

// Reports memory statistics as a caching allocator does, but allocates nothing.
class FakeAllocator final : public c10::DeviceAllocator {
 public:
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t /*pool*/) override {}
  void recordStream(const c10::DataPtr& /*data*/, c10::Stream /*stream*/) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex /*device*/) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.reserved_bytes[0].current = ReadStorageUse().bytes + (1 << 20);
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex /*device*/) override {}
  void resetPeakStats(c10::DeviceIndex /*device*/) override {}
  c10::DataPtr allocate(size_t /*bytes*/) override { TORCH_CHECK(false, "the fake allocator hands out nothing"); }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};

}  // namespace

FakeMps& FakeMps::Get() {
  static FakeMps fake;
  return fake;
}

void FakeMps::Reset() {
  InstallStorageAllocator();
  static const auto observer = at::addGlobalCallback(
      at::RecordFunctionCallback(OnOperator).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  static_cast<void>(observer);
  State& state = TheState();
  const std::scoped_lock lock(state.mutex);
  state.owner.reset();
  state.calls.clear();
  state.violations.clear();
  state.driver = state.graph_bytes = 0;
  state.recommended_max = int64_t{16} << 30;
  state.kept_graphs = state.leak = state.fault = false;
  state.copies = {};
  if (MPSGraphCache::_instance_cache != nullptr) MPSGraphCache::_instance_cache->cache_.clear();
}

void FakeMps::SetDriver(int64_t bytes, int64_t bytes_of_a_graph) {
  State& state = TheState();
  const std::scoped_lock lock(state.mutex);
  state.driver = bytes;
  state.graph_bytes = bytes_of_a_graph;
}

void FakeMps::SetRecommendedMax(int64_t bytes) {
  State& state = TheState();
  const std::scoped_lock lock(state.mutex);
  state.recommended_max = bytes;
}

void FakeMps::SetKeptGraphs(bool kept) {
  State& state = TheState();
  const std::scoped_lock lock(state.mutex);
  state.kept_graphs = kept;
}

void FakeMps::SetLeak(bool leak) {
  State& state = TheState();
  const std::scoped_lock lock(state.mutex);
  state.leak = leak;
}

void FakeMps::SetFault(bool fault) {
  State& state = TheState();
  const std::scoped_lock lock(state.mutex);
  state.fault = fault;
}

FakeMps::Copies FakeMps::copies() const {
  const std::scoped_lock lock(TheState().mutex);
  return TheState().copies;
}

int64_t FakeMps::graphs() const {
  const std::scoped_lock lock(TheState().mutex);
  return GraphsNow();
}

std::vector<std::string> FakeMps::calls() const {
  const std::scoped_lock lock(TheState().mutex);
  return TheState().calls;
}

std::vector<std::string> FakeMps::violations() const {
  const std::scoped_lock lock(TheState().mutex);
  return TheState().violations;
}

}  // namespace permafrost::device

namespace at {

// getMPSHooks() looks this name up in the registry.
struct MPSHooks : MPSHooksInterface {
  bool isBuilt() const override { return true; }
  bool hasMPS() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex /*device*/) const override { return true; }
  Allocator* getMPSDeviceAllocator() const override {
    static permafrost::device::FakeAllocator allocator;
    return &allocator;
  }
  size_t getRecommendedMaxMemory() const override {
    auto& state = permafrost::device::TheState();
    const std::scoped_lock lock(state.mutex);
    return static_cast<size_t>(state.recommended_max);
  }
  size_t getCurrentAllocatedMemory() const override {
    Use("getCurrentAllocatedMemory");
    return static_cast<size_t>(permafrost::device::ReadStorageUse().bytes);
  }
  size_t getDriverAllocatedMemory() const override {
    auto& state = Use("getDriverAllocatedMemory");
    const std::scoped_lock lock(state.mutex);
    return static_cast<size_t>(state.driver + state.graph_bytes * permafrost::device::GraphsNow());
  }
  void deviceSynchronize() const override {
    auto& state = Use("deviceSynchronize");
    const std::scoped_lock lock(state.mutex);
    Note(state, "synchronize");
  }
  void emptyCache() const override {
    using permafrost::device::AutoreleasePool;
    auto& state = permafrost::device::TheState();
    const std::scoped_lock lock(state.mutex);
    NoteUse(state, "emptyCache");
    if (state.calls.empty() || state.calls.back() != "synchronize")
      Violate(state, "emptyCache while operators may run");
    if (AutoreleasePool::depth() > 1) Violate(state, "emptyCache within a step");
    Note(state, "empty");
    if (native::mps::MPSGraphCache::_instance_cache != nullptr && !state.kept_graphs) {
      native::mps::MPSGraphCache::_instance_cache->cache_.clear();
    }
  }

 private:
  // A reading of the memory must be on the owner's thread, but needs no autorelease pool.
  static permafrost::device::State& Use(const char* what) {
    auto& state = permafrost::device::TheState();
    const std::scoped_lock lock(state.mutex);
    const std::thread::id self = std::this_thread::get_id();
    if (!state.owner) state.owner = self;
    if (*state.owner != self) permafrost::device::Violate(state, std::string(what) + " on a second thread");
    return state;
  }
};

REGISTER_MPS_HOOKS(MPSHooks);

}  // namespace at
