#include "data/store/block_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace permafrost::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr uint64_t kBlock = BlockGuard::kBlockBytes;

// Guarded bytes of three blocks and a part of a fourth.
class BlockGuardTest : public ::testing::Test {
 protected:
  BlockGuardTest() : bytes_(3 * kBlock + 10) {
    for (size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<std::byte>(i * 31);
    BlockHashes hashes;
    hashes.Update(bytes_);
    checksums_ = hashes.Take();
  }
  std::unique_ptr<BlockGuard> Guard(BlockGuard::ContentCheck check = nullptr) const {
    return std::make_unique<BlockGuard>("f: section s", bytes_, checksums_, BlockGuard::kBlockBytes, std::move(check));
  }
  void Damage(uint64_t at) { bytes_[at] ^= std::byte{1}; }

  std::vector<std::byte> bytes_;
  std::vector<uint64_t> checksums_;
};

TEST_F(BlockGuardTest, HashesDoNotDependOnThePieces) {
  ASSERT_EQ(checksums_.size(), 4u);
  for (const size_t piece : {1000u, 65'536u, 70'000u}) {
    BlockHashes hashes;
    for (size_t at = 0; at < bytes_.size(); at += piece) {
      hashes.Update(std::span(bytes_).subspan(at, std::min(piece, bytes_.size() - at)));
    }
    EXPECT_EQ(hashes.Take(), checksums_) << piece;
    EXPECT_TRUE(hashes.Take().empty()) << "begun anew";
  }
}

TEST_F(BlockGuardTest, EachBlockIsVerifiedOnceWhenItIsFirstTouched) {
  std::vector<std::pair<uint64_t, uint64_t>> checked;
  const auto guard = Guard([&checked](uint64_t begin, uint64_t end) {
    checked.emplace_back(begin, end);
    return absl::OkStatus();
  });
  EXPECT_TRUE(guard->Touch(5, 5)) << "nothing";
  EXPECT_THAT(checked, ElementsAre());
  EXPECT_TRUE(guard->Touch(kBlock - 1, kBlock + 1));
  EXPECT_TRUE(guard->Touch(0, 2 * kBlock));
  EXPECT_TRUE(guard->Touch(3 * kBlock + 9, 3 * kBlock + 10));
  EXPECT_THAT(checked, ElementsAre(Pair(0, kBlock), Pair(kBlock, 2 * kBlock), Pair(3 * kBlock, 3 * kBlock + 10)));
  EXPECT_TRUE(guard->status().ok());
}

TEST_F(BlockGuardTest, DamageSpoilsItsBlockOnlyAndStays) {
  Damage(kBlock + 7);
  const auto guard = Guard();
  EXPECT_TRUE(guard->Touch(0, kBlock));
  EXPECT_TRUE(guard->status().ok()) << "nobody touched it yet";
  EXPECT_FALSE(guard->Touch(0, kBlock + 1));
  EXPECT_EQ(guard->status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(guard->status().message()), HasSubstr("f: section s: bytes 65536..131071: checksum: is "));
  Damage(3 * kBlock);
  EXPECT_FALSE(guard->Touch(3 * kBlock, 3 * kBlock + 1));
  EXPECT_THAT(std::string(guard->status().message()), HasSubstr("bytes 65536..131071")) << "the first one is told";
  Damage(kBlock + 7);
  EXPECT_FALSE(guard->Touch(kBlock + 100, kBlock + 101)) << "even if it were whole again";
  EXPECT_TRUE(guard->Touch(2 * kBlock, 3 * kBlock));
}

TEST_F(BlockGuardTest, ContentThatIsFalseIsDamage) {
  const auto guard = Guard([](uint64_t begin, uint64_t) {
    return begin == 0 ? absl::OkStatus() : absl::DataLossError("offset 8192: is 1, expected at least 2");
  });
  EXPECT_TRUE(guard->Touch(0, 1));
  EXPECT_FALSE(guard->Touch(kBlock, kBlock + 1));
  EXPECT_THAT(std::string(guard->status().message()), HasSubstr("content: offset 8192: is 1"));
}

TEST_F(BlockGuardTest, OneChecksumForAll) {
  const std::vector<uint64_t> checksum = {Hash64(bytes_.data(), bytes_.size())};
  for (const bool damaged : {false, true}) {
    if (damaged) Damage(3 * kBlock);
    const BlockGuard guard("f: section s", bytes_, checksum, BlockGuard::kWhole, nullptr);
    const auto reads = guard.Reads(3, 4);
    EXPECT_EQ(reads.begin, 0u);
    EXPECT_EQ(reads.end, bytes_.size());
    EXPECT_EQ(guard.Touch(0, 1), !damaged);
    EXPECT_EQ(guard.Touch(3 * kBlock, 3 * kBlock + 1), !damaged);
  }
  const BlockGuard empty("f: section s", {}, {}, BlockGuard::kBlockBytes, nullptr);
  EXPECT_TRUE(empty.Touch(0, 0));
}

TEST_F(BlockGuardTest, ReadsAreWholeBlocksUntilTheyAreVerified) {
  const auto guard = Guard();
  ASSERT_TRUE(guard->Touch(kBlock, 2 * kBlock));
  const struct {
    const char* why;
    uint64_t begin, end, want_begin, want_end;
  } kCases[] = {
      {"verified: as asked", kBlock + 5, kBlock + 9, kBlock + 5, kBlock + 9},
      {"not verified: the block", 5, 9, 0, kBlock},
      {"from one that is not into one that is", 5, kBlock + 9, 0, kBlock + 9},
      {"from one that is into one that is not", kBlock + 5, 2 * kBlock + 1, kBlock + 5, 3 * kBlock},
      {"the last one is shorter", 3 * kBlock + 1, 3 * kBlock + 2, 3 * kBlock, 3 * kBlock + 10},
      {"nothing", 7, 7, 7, 7},
  };
  for (const auto& c : kCases) {
    const auto range = guard->Reads(c.begin, c.end);
    EXPECT_EQ(range.begin, c.want_begin) << c.why;
    EXPECT_EQ(range.end, c.want_end) << c.why;
  }
}

TEST_F(BlockGuardTest, AColumnCountsInElements) {
  const auto guard = Guard();
  const Column<uint16_t> column({reinterpret_cast<const uint16_t*>(bytes_.data()), bytes_.size() / 2}, guard.get());
  Damage(kBlock);
  EXPECT_TRUE(column.Touch(0, kBlock / 2));
  EXPECT_FALSE(column.Touch(kBlock / 2, kBlock / 2 + 1));
  EXPECT_EQ(column.Reads(kBlock, kBlock + 1).size(), kBlock);
  EXPECT_EQ(column.status(), guard->status());
}

TEST_F(BlockGuardTest, ManyThreads) {
  Damage(2 * kBlock);
  for (int round = 0; round < 20; ++round) {
    const auto guard = Guard();
    std::atomic<int> allowed{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (uint64_t b = 0; b < 4; ++b) {
          if (guard->Touch(b * kBlock, b * kBlock + 1)) {
            ++allowed;
          } else {
            EXPECT_FALSE(guard->status().ok());
          }
        }
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(allowed, 4 * 3);
  }
}

}  // namespace
}  // namespace permafrost::data
