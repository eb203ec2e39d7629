// Counts the compiled graphs that libtorch's MPS backend keeps. It has no call for that: the count is read out of its
// own cache object, at::native::mps::MPSGraphCache (ATen/native/mps/OperationUtils.h), whose first member is a
// std::unordered_map. It is believed only for versions whose header was read, and only where it does what a count does.
// Threads: the device thread.
#pragma once

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

}  // namespace permafrost::device
