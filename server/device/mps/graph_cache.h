// Counts the entries of libtorch's cache of compiled MPS graphs, and freezes and clears the cache if libtorch has
// calls for that. Also decides when the driver holds so much memory that the caches must be emptied.
// Threads: the device thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace permafrost::device {

// Returns the number of graphs in libtorch's cache. `instance` is the address of MPSGraphCache::_instance_cache. If
// this variable holds null, no graph was made yet, and the result is 0. Reads the memory of a std::unordered_map. In
// 64-bit libc++ and libstdc++, the map consists of two words for the buckets, a pointer to the first node, and the
// count.
uint64_t ReadGraphEntries(const void* instance);

// The functions of the device that a GraphEntries uses. Tests replace them.
struct GraphEntriesProbe {
  std::string version;  // libtorch's version, such as "2.13.0"
  // Returns the address of MPSGraphCache::_instance_cache; nullptr if the library has no such symbol.
  std::function<const void*()> find;
  // Multiplies two matrices, whose shapes are different for each `number`, and waits for the product.
  std::function<void(int64_t number)> multiply;
  // Empties the device's caches.
  std::function<void()> empty;
};
// Returns the functions of this process's MPS device.
GraphEntriesProbe ProbeOfMps();

// Counts the compiled graphs that libtorch's MPS backend keeps. libtorch has no call that counts them, so the count
// is read from the memory of its cache, at::native::mps::MPSGraphCache (ATen/native/mps/OperationUtils.h). The first
// member of this class is a std::unordered_map. The count is used only for versions whose header was examined, and
// only if a trial confirms it.
class GraphEntries {
 public:
  // Tests the count. A product of a new shape must raise it by 1, and the same product again must leave it unchanged.
  // Emptying the caches must set it to 0. The caches are empty afterwards. Exceptions of the probe pass through.
  explicit GraphEntries(const GraphEntriesProbe& probe);

  // Returns nullopt if the count is not known. reason() then says why.
  std::optional<int64_t> Count() const;
  const std::string& reason() const { return reason_; }

 private:
  std::string Try(const GraphEntriesProbe& probe);

  const void* instance_ = nullptr;
  std::string reason_;
};

// Calls that freeze and clear libtorch's cache of compiled MPS graphs, if libtorch's hooks have them. The hooks of
// versions 2.13 and 2.15 have none (pytorch#182648 was never merged). For later versions, the compiler looks for each
// call under two likely names. `Hooks` is at::MPSHooksInterface.
template <class Hooks>
struct GraphCacheCalls {
  static constexpr bool kFreezes = requires(const Hooks& h) { h.freeze_graph_cache(); }
  || requires(const Hooks& h) { h.freezeGraphCache(); };
  static constexpr bool kThaws = requires(const Hooks& h) { h.unfreeze_graph_cache(); }
  || requires(const Hooks& h) { h.unfreezeGraphCache(); };
  static constexpr bool kClears = requires(const Hooks& h) { h.clear_graph_cache(); }
  || requires(const Hooks& h) { h.clearGraphCache(); };

  // Makes the cache take no new graphs from here on. Does nothing if libtorch has no call to thaw the cache again.
  static void Freeze(const Hooks& hooks) {
    if constexpr (!kThaws) return;
    if constexpr (requires { hooks.freeze_graph_cache(); }) {
      hooks.freeze_graph_cache();
    } else if constexpr (requires { hooks.freezeGraphCache(); }) {
      hooks.freezeGraphCache();
    }
  }
  static void Thaw(const Hooks& hooks) {
    if constexpr (!kFreezes) return;
    if constexpr (requires { hooks.unfreeze_graph_cache(); }) {
      hooks.unfreeze_graph_cache();
    } else if constexpr (requires { hooks.unfreezeGraphCache(); }) {
      hooks.unfreezeGraphCache();
    }
  }
  // Drops the graphs and nothing else, if libtorch has a call for that. Returns whether libtorch has the call.
  static bool Clear(const Hooks& hooks) {
    if constexpr (requires { hooks.clear_graph_cache(); }) {
      hooks.clear_graph_cache();
    } else if constexpr (requires { hooks.clearGraphCache(); }) {
      hooks.clearGraphCache();
    }
    return kClears;
  }
};

// Decides when the driver holds so much memory that the device's caches must be emptied.
class DriverThreshold {
 public:
  // `limit` is in bytes; 0 means never.
  explicit DriverThreshold(int64_t limit) : limit_(limit) {}

  int64_t limit() const { return limit_; }
  // Returns true if the caches must be emptied now, since `driver_bytes` has reached the limit. Call it between two
  // steps. The first call after the caches were emptied returns false and notes the driver's bytes. Later calls return
  // true only once the bytes have reached the limit and have also grown by a quarter. Hence, if emptying did not lower
  // the memory, the caches are not emptied again at once.
  bool Due(int64_t driver_bytes) {
    if (refilling_) {
      refilling_ = false;
      floor_ = driver_bytes + driver_bytes / 4;
      return false;
    }
    return limit_ > 0 && driver_bytes >= std::max(limit_, floor_);
  }
  // Call it after the caches were emptied. The next step fills them again with the graphs and blocks that it needs.
  void OnEmptied() { refilling_ = true; }

 private:
  int64_t limit_;
  int64_t floor_ = 0;
  bool refilling_ = false;
};

}  // namespace permafrost::device
