#include "device/mps/graph_cache.h"

#include <ATen/detail/MPSHooksInterface.h>
#include <gtest/gtest.h>

#include <string>

namespace permafrost::device {
namespace {

struct Snake {
  mutable std::string called;
  void freeze_graph_cache() const { called += "freeze "; }
  void unfreeze_graph_cache() const { called += "thaw "; }
  void clear_graph_cache() const { called += "clear "; }
};
struct Camel {
  mutable std::string called;
  void freezeGraphCache() const { called += "freeze "; }
  void unfreezeGraphCache() const { called += "thaw "; }
  void clearGraphCache() const { called += "clear "; }
};
struct FreezesForGood {
  mutable std::string called;
  void freeze_graph_cache() const { called += "freeze "; }
};

template <class Hooks>
std::string CallsOf() {
  const Hooks hooks;
  GraphCacheCalls<Hooks>::Freeze(hooks);
  GraphCacheCalls<Hooks>::Thaw(hooks);
  EXPECT_EQ(GraphCacheCalls<Hooks>::Clear(hooks), GraphCacheCalls<Hooks>::kClears);
  return hooks.called;
}

TEST(GraphCacheCallsTest, AreUsedWhereTheyAre) {
  EXPECT_EQ(CallsOf<Snake>(), "freeze thaw clear ");
  EXPECT_EQ(CallsOf<Camel>(), "freeze thaw clear ");
  EXPECT_EQ(CallsOf<FreezesForGood>(), "") << "the next job could compile nothing";
}

TEST(GraphCacheCallsTest, ThisLibraryHasNone) {
  using Calls = GraphCacheCalls<at::MPSHooksInterface>;
  EXPECT_FALSE(Calls::kFreezes || Calls::kThaws || Calls::kClears);
}

}  // namespace
}  // namespace permafrost::device
