#include "base/crew.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

namespace permafrost {
namespace {

using testing::Each;

// Calls body(part) for each part on the crew.
template <class Body>
void RunOn(Crew& crew, int parts, const Body& body) {
  crew.Run(
      parts, [](const void* context, int part) { (*static_cast<const Body*>(context))(part); }, &body);
}

TEST(CrewTest, EveryPartIsDoneOnceInEveryRegion) {
  Crew crew(3);
  EXPECT_EQ(crew.size(), 4);
  for (int region = 0; region < 20'000; ++region) {
    const int parts = 1 + region % 7;
    std::vector<int> done(static_cast<size_t>(parts));
    RunOn(crew, parts, [&](int part) { ++done[static_cast<size_t>(part)]; });
    ASSERT_THAT(done, Each(1)) << region;
  }
}

TEST(CrewTest, SeveralThreadsWork) {
  Crew crew(1);
  std::atomic<int> began = 0;
  std::vector<std::thread::id> of_part(2);
  RunOn(crew, 2, [&](int part) {
    of_part[static_cast<size_t>(part)] = std::this_thread::get_id();
    ++began;
    while (began < 2) std::this_thread::yield();
  });
  EXPECT_NE(of_part[0], of_part[1]);
}

// The helpers have fallen asleep during the pause.
TEST(CrewTest, ARegionAfterAPauseIsDoneToo) {
  Crew crew(2);
  for (int region = 0; region < 5; ++region) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::atomic<int> sum = 0;
    RunOn(crew, 3, [&](int part) { sum += part + 1; });
    EXPECT_EQ(sum, 6);
  }
}

TEST(CrewTest, AnExceptionReachesTheOwnerAndTheNextRegionRuns) {
  Crew crew(2);
  for (int region = 0; region < 100; ++region) {
    std::atomic<int> ended = 0;
    EXPECT_THROW(RunOn(crew, 6,
                       [&](int part) {
                         ++ended;
                         if (part % 2 == 1) throw std::runtime_error("a part");
                       }),
                 std::runtime_error);
    EXPECT_EQ(ended, 6) << "the other parts are done";
    RunOn(crew, 2, [&](int /*part*/) { ++ended; });
    EXPECT_EQ(ended, 8);
  }
}

TEST(CrewTest, EachThreadHasItsOwn) {
  Crew& own = Crew::OfThisThread(2);
  EXPECT_EQ(&Crew::OfThisThread(2), &own);
  Crew* other = nullptr;
  std::thread([&] {
    other = &Crew::OfThisThread(2);
    std::atomic<int> sum = 0;
    RunOn(*other, 4, [&](int part) { sum += part; });
    EXPECT_EQ(sum, 6);
  }).join();
  EXPECT_NE(other, &own);
  EXPECT_EQ(Crew::OfThisThread(3).size(), 3);
}

TEST(CrewTest, ACrewWithoutHelpersDoesAllItself) {
  Crew crew(0);
  int sum = 0;
  RunOn(crew, 5, [&](int part) { sum += part; });
  EXPECT_EQ(sum, 10);
}

}  // namespace
}  // namespace permafrost
