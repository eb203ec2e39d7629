#include "base/hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

namespace permafrost {
namespace {

// XXH3-64 with seed 0. Every file format contains these hashes, so the test pins their values.
TEST(Hash, KnownValues) {
  EXPECT_EQ(HashHex(Hash64("")), "2d06800538d394c2");
  EXPECT_EQ(HashHex(0x1), "0000000000000001");
}

TEST(Hash, PiecesEqualTheWhole) {
  std::string data;
  for (int i = 0; i < 5000; ++i) data.push_back(static_cast<char>(i * 31));
  for (const std::size_t piece : {1u, 7u, 240u, 1024u, 5000u}) {
    StreamHash first;
    first.Update(data.data(), 0);
    StreamHash hash = std::move(first);
    for (std::size_t at = 0; at < data.size(); at += piece) {
      hash.Update(data.data() + at, std::min(piece, data.size() - at));
    }
    EXPECT_EQ(hash.Digest(), Hash64(data)) << piece;
    hash.Reset();
    EXPECT_EQ(hash.Digest(), Hash64("")) << "as new";
  }
}

TEST(Hash, OneBitCounts) {
  std::string data(100, 'a');
  const auto before = Hash64(data);
  const Hash128Value wide = Hash128(data.data(), data.size());
  EXPECT_EQ(Hash128(data.data(), data.size()), wide);
  data[50] ^= 1;
  EXPECT_NE(Hash64(data), before);
  EXPECT_NE(Hash128(data.data(), data.size()).low, wide.low);
  EXPECT_NE(Hash128(data.data(), data.size()).high, wide.high);
}

}  // namespace
}  // namespace permafrost
