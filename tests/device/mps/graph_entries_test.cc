#include "device/mps/graph_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <unordered_map>

namespace permafrost::device {
namespace {

using testing::HasSubstr;

// MPSGraphCache in the layout of this compiler's standard library.
struct Cache {
  struct Entry {
    void* graph = nullptr;
    std::string key;
  };
  std::unordered_map<uint64_t, Entry> graphs;
  void* queue = nullptr;
};

// The same in the layout of libc++ (include/__hash_table): the buckets and their number, the first node, the count,
// the load factor.
struct LibcxxCache {
  void** buckets = nullptr;
  size_t bucket_count = 0;
  void* first = nullptr;
  size_t count = 0;
  float load_factor = 1;
};

TEST(ReadGraphEntriesTest, OfEitherStandardLibrary) {
  const Cache* none = nullptr;
  EXPECT_EQ(ReadGraphEntries(&none), 0u) << "no graph was made yet";
  Cache cache;
  const Cache* const instance = &cache;
  for (uint64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(ReadGraphEntries(&instance), i);
    cache.graphs[i * 7919] = {.graph = &cache, .key = std::to_string(i)};
  }
  cache.graphs.clear();
  EXPECT_EQ(ReadGraphEntries(&instance), 0u);
  const LibcxxCache libcxx{.bucket_count = 11, .count = 7};
  const LibcxxCache* const other = &libcxx;
  EXPECT_EQ(ReadGraphEntries(&other), 7u);
}

// A device whose cache gets an entry for each product of a new shape.
struct FakeDevice {
  Cache cache;
  const Cache* instance = &cache;
  std::set<int64_t> seen;
  uint64_t keys = 0;

  GraphEntriesProbe Probe() {
    return {.version = "2.13.0",
            .find = [this]() -> const void* { return &instance; },
            .multiply =
                [this](int64_t number) {
                  if (seen.insert(number).second) cache.graphs[++keys] = {};
                },
            .empty =
                [this] {
                  cache.graphs.clear();
                  seen.clear();
                }};
  }
};

TEST(GraphEntriesTest, ACountThatDoesAsItShouldIsTold) {
  FakeDevice device;
  device.cache.graphs[1'000'000] = {};
  const GraphEntries entries(device.Probe());
  EXPECT_EQ(entries.reason(), "");
  EXPECT_EQ(entries.Count(), 0);
  device.cache.graphs[5] = {};
  EXPECT_EQ(entries.Count(), 1);
}

TEST(GraphEntriesTest, AnythingElseIsNot) {
  const auto refused = [](GraphEntriesProbe probe, std::string_view why) {
    const GraphEntries entries(probe);
    EXPECT_EQ(entries.Count(), std::nullopt) << why;
    EXPECT_THAT(entries.reason(), HasSubstr(std::string(why)));
  };
  FakeDevice device;
  GraphEntriesProbe probe = device.Probe();
  bool touched = false;
  probe.version = "2.99.0";
  probe.multiply = [&](int64_t) { touched = true; };
  probe.find = [&]() -> const void* {
    touched = true;
    return nullptr;
  };
  refused(probe, "libtorch 2.99.0: its cache of graphs was read in 2.13.0 only");
  EXPECT_FALSE(touched) << "nothing of another version's layout is read";

  probe = device.Probe();
  probe.find = [] { return nullptr; };
  refused(probe, "exports no MPSGraphCache");

  probe = device.Probe();
  probe.multiply = [](int64_t) {};
  refused(probe, "a matrix product of a new shape made it 0, not 1");

  probe = device.Probe();
  probe.multiply = [&](int64_t) { device.cache.graphs[++device.keys] = {}; };
  refused(probe, "the same product again made it 3, not 2");

  device.cache.graphs.clear();
  device.seen.clear();
  probe = device.Probe();
  probe.empty = [] {};
  refused(probe, "emptying the caches made it 2, not 0");

  const LibcxxCache garbage{.count = size_t{1} << 60};
  const LibcxxCache* const instance = &garbage;
  probe = device.Probe();
  probe.find = [&]() -> const void* { return &instance; };
  refused(probe, "which is none");
}

TEST(GraphEntriesTest, ThisLibraryHasNone) {
  const GraphEntries entries(ProbeOfMps());
  EXPECT_EQ(entries.Count(), std::nullopt);
  EXPECT_EQ(entries.reason(), "this libtorch exports no MPSGraphCache");
}

}  // namespace
}  // namespace permafrost::device
