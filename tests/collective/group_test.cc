#include "collective/group.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>

#include <array>
#include <string>

#include "collective/ranks.h"
#include "collective/tcp_group.h"

namespace permafrost::collective {
namespace {

using at::Tensor;

Tensor Of(const Group& group, double value) { return at::full({3}, value + static_cast<double>(group.rank())); }

TEST(GroupTest, SumsAndGathersInTheOrderOfRanks) {
  RunRanks(3, [](Group& group) {
    Tensor x = Of(group, 1);
    group.AllReduceSum(x);
    EXPECT_TRUE(at::equal(x, at::full({3}, 6.0))) << x;
    const std::vector<double> own{1, static_cast<double>(group.rank())};
    EXPECT_THAT(group.AllGather(own), testing::ElementsAre(1, 0, 1, 1, 1, 2));
    EXPECT_EQ(group.leads(), group.rank() == 0);
  });
}

// One tensor is sent whole to every rank, and the other in parts.
TEST(GroupTest, Bfloat16IsAddedInFloat32AndRoundedOnce) {
  RunRanks(3, [](Group& group) {
    for (const int64_t size : {1'000, 50'001}) {
      std::vector<Tensor> own;
      for (int64_t r = 0; r < group.size(); ++r) {
        at::Generator generator = at::detail::createCPUGenerator(static_cast<uint64_t>(r));
        own.push_back(at::randn({size}, generator).to(at::kBFloat16));
      }
      Tensor sum = own[static_cast<size_t>(group.rank())].clone();
      group.AllReduceSum(sum);
      const Tensor wanted = own[0].to(at::kFloat) + own[1].to(at::kFloat) + own[2].to(at::kFloat);
      EXPECT_TRUE(at::equal(sum, wanted.to(at::kBFloat16))) << size;
      EXPECT_FALSE(at::equal(sum, own[0] + own[1] + own[2])) << "the same sums, rounded twice";
    }
  });
}

TEST(GroupTest, RanksMayHaveDifferentNumbersOfRowsAndNone) {
  RunRanks(3, [](Group& group) {
    const Tensor rows = at::full({2 * group.rank(), 2}, group.rank(), at::kInt);
    const Tensor all = group.AllGatherRows(rows);
    ASSERT_EQ(all.sizes(), (std::array<int64_t, 2>{6, 2}));
    EXPECT_EQ(all[0][0].item<int>(), 1);
    EXPECT_EQ(all[5][1].item<int>(), 2);
    EXPECT_EQ(group.AllGatherRows(at::empty({0}, at::kInt)).numel(), 0);
  });
}

TEST(GroupTest, EveryRankHasWhatTheFirstSends) {
  RunRanks(2, [](Group& group) {
    Tensor x = Of(group, 7);
    group.Broadcast(x);
    EXPECT_TRUE(at::equal(x, at::full({3}, 7.0)));
    EXPECT_EQ(group.BroadcastText(group.leads() ? "state" : "other, and longer"), "state");
    EXPECT_EQ(group.BroadcastText(""), "");
  });
}

TEST(GroupTest, ManyTensorsTravelTogether) {
  RunRanks(2, [](Group& group) {
    std::vector<Tensor> x{Of(group, 7), at::full({}, group.rank() + 3, at::kLong), at::empty({0}),
                          at::full({20'000}, static_cast<double>(group.rank()), at::kFloat),
                          Of(group, 1).to(at::kDouble)};
    const int64_t before = group.traffic().exchanges;
    group.BroadcastAll(x);
    EXPECT_EQ(group.traffic().exchanges, before + 2) << "the small ones, and the large one";
    EXPECT_TRUE(at::equal(x[0], at::full({3}, 7.0)));
    EXPECT_EQ(x[1].item<int64_t>(), 3);
    EXPECT_TRUE(at::equal(x[3], at::zeros({20'000})));
    EXPECT_TRUE(at::equal(x[4], at::full({3}, 1.0, at::kDouble)));
  });
}

TEST(GroupTest, MeetWaitsForTheLastRank) {
  std::atomic<int> came = 0;
  RunRanks(2, [&](Group& group) {
    for (int i = 1; i <= 3; ++i) {
      if (group.rank() == 1) absl::SleepFor(absl::Milliseconds(50));
      ++came;
      group.Meet();
      EXPECT_GE(came.load(), 2 * i);
    }
  });
}

TEST(GroupTest, ARankThatIsGoneFailsTheOthersAndStaysSo) {
  RunRanks(2, [](Group& group) {
    if (group.rank() == 1) return;
    Tensor x = Of(group, 1);
    EXPECT_ANY_THROW(group.AllReduceSum(x));
    EXPECT_TRUE(absl::IsUnavailable(group.failure())) << group.failure();
    EXPECT_ANY_THROW(group.Meet());
    EXPECT_EQ(group.failure().message().find('\n'), absl::string_view::npos);
  });
}

TEST(GroupTest, ARankThatDoesNotAnswerIsNotWaitedForForLong) {
  std::atomic<bool> failed = false;
  RunRanks(2,
           [&](Group& group) {
             if (group.rank() == 1) {
               while (!failed) absl::SleepFor(absl::Milliseconds(10));
               return;
             }
             Tensor x = Of(group, 1);
             EXPECT_ANY_THROW(group.AllReduceSum(x));
             EXPECT_THAT(std::string(group.failure().message()),
                         testing::HasSubstr("rank 1 (127.0.0.1) has not answered for 200ms"));
             failed = true;
           },
           {.step_timeout = absl::Milliseconds(200)});
}

TEST(GroupTest, LargeTensorsAreSummedInTheSameOrder) {
  // 100,001 values cannot be divided into equal parts.
  RunRanks(3, [](Group& group) {
    const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(group.rank() + 1));
    const Tensor own = at::randn({100'001}, generator);
    std::vector<Tensor> all;
    for (uint64_t r = 1; r <= 3; ++r) all.push_back(at::randn({100'001}, at::make_generator<at::CPUGeneratorImpl>(r)));
    Tensor sum = own.clone();
    group.AllReduceSum(sum);
    EXPECT_TRUE(at::equal(sum, all[0] + all[1] + all[2]));
    Tensor few = own.narrow(0, 0, 7).clone();
    group.AllReduceSum(few);
    EXPECT_TRUE(at::equal(few, sum.narrow(0, 0, 7))) << "small ones take another way, to the same bits";
  });
}

TEST(GroupTest, RanksThatDoNotComeAreAnError) {
  const auto rendezvous = Rendezvous::Serve();
  ASSERT_TRUE(rendezvous.ok());
  const auto group = LeadTcp(**rendezvous, {.connect_timeout = absl::Milliseconds(100)});
  EXPECT_THAT(std::string(group.status().message()),
              testing::HasSubstr("of this machine within 100ms: does a firewall"));
  EXPECT_TRUE(absl::IsUnavailable(JoinTcp("no-such-host.invalid", 1, {.rank = 1}).status()));
}

TEST(GroupTest, RanksThatExchangeDifferentThingsAreTold) {
  RunRanks(2, [](Group& group) {
    Tensor x = at::ones({group.leads() ? 3 : 4});
    EXPECT_ANY_THROW(group.AllReduceSum(x));
    const std::string said(group.failure().message());
    if (group.leads()) {
      EXPECT_EQ(said,
                "rank 1 (127.0.0.1) is at exchange 1 with 16 bytes where exchange 1 with 12 bytes was expected: the "
                "ranks are out of "
                "step");
    }
  });
}

TEST(GroupTest, ARankThatIsToStopDoesNotWaitForAnother) {
  std::atomic<bool> stopped = false;
  RunRanks(2,
           [&](Group& group) {
             if (!group.leads()) {
               while (!stopped) absl::SleepFor(absl::Milliseconds(10));
               return;
             }
             EXPECT_ANY_THROW(group.Meet());
             EXPECT_TRUE(absl::IsCancelled(group.failure())) << group.failure();
             stopped = true;
           },
           {.keep_going = [] { return false; }});
}

TEST(GroupTest, WhoConnectsAndGoesIsNoRank) {
  const auto rendezvous = Rendezvous::Serve();
  ASSERT_TRUE(rendezvous.ok());
  const int port = (*rendezvous)->port();
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(Connect("127.0.0.1", port, Deadline(absl::Seconds(1))).ok());
  std::thread other(
      [&] { EXPECT_TRUE(JoinTcp("127.0.0.1", port, {.rank = 1, .token = (*rendezvous)->token()}).ok()); });
  const auto group = LeadTcp(**rendezvous, {});
  EXPECT_TRUE(group.ok()) << group.status();
  other.join();
}

TEST(GroupTest, WhoDoesNotKnowTheTokenIsNotInTheGroup) {
  const auto rendezvous = Rendezvous::Serve();
  ASSERT_TRUE(rendezvous.ok());
  std::thread other([&] {
    const auto joined = JoinTcp("127.0.0.1", (*rendezvous)->port(),
                                {.rank = 1, .token = std::string(32, '0'), .connect_timeout = absl::Seconds(5)});
    EXPECT_TRUE(absl::IsUnavailable(joined.status())) << joined.status();
  });
  const auto group = LeadTcp(**rendezvous, {.connect_timeout = absl::Milliseconds(300)});
  EXPECT_TRUE(absl::IsUnavailable(group.status())) << group.status();
  other.join();
}

TEST(ScopeTest, OperatorsShareWithinAScopeAndNotApart) {
  EXPECT_FALSE(IsShared());
  EXPECT_TRUE(at::equal(AllReduceSum(at::ones({2})), at::ones({2})));
  RunRanks(2, [](Group& group) {
    const Scope scope(&group);
    EXPECT_TRUE(IsShared());
    EXPECT_EQ(AllReduceSum(at::ones({2}))[0].item<float>(), 2);
    {
      const Apart apart;
      EXPECT_TRUE(IsShared());
      EXPECT_EQ(Current(), nullptr);
      EXPECT_EQ(AllReduceSum(at::ones({2}))[0].item<float>(), 1);
    }
    const auto sums = AllReduceSum({at::ones({2, 2}), at::full({3}, 2.0)});
    ASSERT_EQ(sums.size(), 2u);
    EXPECT_TRUE(at::equal(sums[0], at::full({2, 2}, 2.0)));
    EXPECT_TRUE(at::equal(sums[1], at::full({3}, 4.0)));
    const auto rounded = AllReduceSum({at::full({1}, 1 + 1.0 / 512)}, at::kBFloat16);
    EXPECT_EQ(rounded[0].item<float>(), 2) << "1/512 of 1 is beyond bfloat16";
  });
}

TEST(RerunTest, ASecondRunGetsWhatTheFirstExchanged) {
  RunRanks(2, [](Group& group) {
    const Scope scope(&group);
    const float own = static_cast<float>(group.rank() + 1);
    Rerun rerun;
    const auto run = [&] {
      const std::vector<double> all = Current()->AllGather(std::vector<double>{own});
      return AllReduceSum(at::full({1}, own)).item<float>() + static_cast<float>(all[0] + all[1]);
    };
    EXPECT_EQ(run(), 6);
    // Rank 1 repeats its step, and rank 0 does not.
    if (group.rank() == 1) {
      for (int again = 0; again < 2; ++again) {
        rerun.Again();
        EXPECT_EQ(run(), 6);
        EXPECT_ANY_THROW(run()) << "a step of more exchanges";
      }
    }
  });
}

}  // namespace
}  // namespace permafrost::collective
