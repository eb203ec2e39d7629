// libtorch's cache of compiled MPS graphs: how many it holds, the calls that freeze and clear it, and when the driver's
// memory asks for it to be emptied.
// Threads: the device thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace permafrost::device {

// instance: the address of MPSGraphCache::_instance_cache. 0 where that holds null: no graph was made yet.
// Reads the layout of libc++ and of libstdc++ on 64 bits: two words of buckets, the first node, then the count.
uint64_t ReadGraphEntries(const void* instance);

// The parts that a GraphEntries is made with; tests replace each.
struct GraphEntriesProbe {
  std::string version;  // of libtorch, as "2.13.0"
  // The address of MPSGraphCache::_instance_cache; nullptr: the library has no such symbol.
  std::function<const void*()> find;
  // Multiplies matrices of a shape that belongs to `number` alone, and waits for the product.
  std::function<void(int64_t number)> multiply;
  // Empties the device's caches.
  std::function<void()> empty;
};
// The parts of this process.
GraphEntriesProbe ProbeOfMps();

// Counts the compiled graphs that libtorch's MPS backend keeps. It has no call for that: the count is read out of its
// own cache object, at::native::mps::MPSGraphCache (ATen/native/mps/OperationUtils.h), whose first member is a
// std::unordered_map. It is believed only for versions whose header was read, and only where it does what a count does.
class GraphEntries {
 public:
  // Tries the count: a product of a new shape must add 1, the same again nothing, and emptying must leave 0. The caches
  // are empty afterwards. Exceptions of the probe pass through.
  explicit GraphEntries(const GraphEntriesProbe& probe);

  // nullopt: not known, as reason() says.
  std::optional<int64_t> Count() const;
  const std::string& reason() const { return reason_; }

 private:
  std::string Try(const GraphEntriesProbe& probe);

  const void* instance_ = nullptr;
  std::string reason_;
};

// Calls to freeze and to clear libtorch's cache of compiled MPS graphs, should its hooks have them one day: 2.13 and
// 2.15 have none (pytorch#182648 never landed). Found when this is compiled, by either of their likely names.
// Hooks: at::MPSHooksInterface.
template <class Hooks>
struct GraphCacheCalls {
  static constexpr bool kFreezes = requires(const Hooks& h) { h.freeze_graph_cache(); }
  || requires(const Hooks& h) { h.freezeGraphCache(); };
  static constexpr bool kThaws = requires(const Hooks& h) { h.unfreeze_graph_cache(); }
  || requires(const Hooks& h) { h.unfreezeGraphCache(); };
  static constexpr bool kClears = requires(const Hooks& h) { h.clear_graph_cache(); }
  || requires(const Hooks& h) { h.clearGraphCache(); };

  // From here on it takes no new graph. A cache that could not be thawed is never frozen.
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
  // Returns whether there was a call that drops the graphs, and only them.
  static bool Clear(const Hooks& hooks) {
    if constexpr (requires { hooks.clear_graph_cache(); }) {
      hooks.clear_graph_cache();
    } else if constexpr (requires { hooks.clearGraphCache(); }) {
      hooks.clearGraphCache();
    }
    return kClears;
  }
};

// Decides when a device's driver holds so much memory that its caches are to be emptied.
class DriverThreshold {
 public:
  // In bytes; 0: never.
  explicit DriverThreshold(int64_t limit) : limit_(limit) {}

  int64_t limit() const { return limit_; }
  // Asked between two steps. Memory that emptying did not bring down is no reason to empty again: after that it is due
  // once a quarter more is held than was then.
  bool Due(int64_t driver_bytes) {
    if (refilling_) {
      refilling_ = false;
      floor_ = driver_bytes + driver_bytes / 4;
      return false;
    }
    return limit_ > 0 && driver_bytes >= std::max(limit_, floor_);
  }
  // The caches were emptied; the next step finds in them again what it needs.
  void OnEmptied() { refilling_ = true; }

 private:
  int64_t limit_;
  int64_t floor_ = 0;
  bool refilling_ = false;
};

}  // namespace permafrost::device
