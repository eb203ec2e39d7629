#include "graphcache/census.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace permafrost::graphcache {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

OpCall Call(std::string op, std::vector<std::vector<int64_t>> sizes) {
  OpCall call{.op = std::move(op)};
  for (std::vector<int64_t>& of : sizes) call.tensors.push_back({"Float", std::move(of)});
  return call;
}

TEST(MpsRules, EntriesOfACall) {
  OpCall with_bias = Call("aten::linear", {{9, 4}, {3, 4}, {3}}), transposed = Call("aten::linear", {{9, 4}, {3, 4}});
  transposed.tensors[1].contiguous = false;
  OpCall without_bias = Call("aten::linear", {{9, 4}, {3, 4}});
  without_bias.tensors.emplace_back();
  const struct {
    const char* why;
    OpCall call;
    std::optional<int64_t> in_2_13, in_2_15;
  } kCases[] = {
      {"a product", Call("aten::mm", {{9, 4}, {4, 3}}), 1, 1},
      {"a product with a bias", Call("aten::addmm", {{3}, {9, 4}, {4, 3}}), 1, 1},
      {"a linear, bias-free, in order", without_bias, 0, 0},
      {"a linear with a bias", with_bias, 1, 1},
      {"a linear of three dimensions", Call("aten::linear", {{2, 9, 4}, {3, 4}}), 1, 1},
      {"a linear of a transposed weight", transposed, 1, 1},
      {"a linear's gradients", Call("aten::linear_backward", {{9, 4}, {9, 3}, {3, 4}}), 2, 2},
      {"a ReLU's gradient", Call("aten::threshold_backward", {{9, 4}, {9, 4}}), 1, 1},
      {"rows by index, on Metal since 2.15", Call("aten::index_select", {{9, 4}, {20}}), 1, 0},
      {"a sum", Call("aten::sum", {{9, 4}}), 0, 0},
      {"anything else", Call("aten::nothing_known", {{9}}), std::nullopt, std::nullopt},
  };
  for (const auto& c : kCases) {
    EXPECT_EQ(EntriesOf(c.call, TorchRelease::k2_13), c.in_2_13) << c.why;
    EXPECT_EQ(EntriesOf(c.call, TorchRelease::k2_15), c.in_2_15) << c.why;
  }
}

// The calls for a batch of (nodes, edges): a product over the nodes, the same product twice over the edges, a product
// of a fixed size, and two operators without a product.
std::vector<OpCall> StreamAt(int64_t nodes, int64_t edges) {
  return {Call("aten::mm", {{nodes, 4}, {4, 4}}),
          Call("aten::add", {{nodes, 4}, {4}}),
          Call("aten::mm", {{edges, 4}, {4, 4}}),
          Call("aten::mm", {{edges, 4}, {4, 4}}),
          Call("aten::threshold_backward", {{nodes + 1, 4}}),
          Call("aten::mm", {{8, 4}, {4, 4}})};
}
const std::vector<std::vector<int64_t>> kSizes{{60, 200}, {31, 77}, {37, 90}, {45, 61}};

std::vector<std::vector<OpCall>> Streams() {
  std::vector<std::vector<OpCall>> streams;
  streams.reserve(kSizes.size());
  for (const auto& sizes : kSizes) streams.push_back(StreamAt(sizes[0], sizes[1]));
  return streams;
}
SymbolicStep StepOf() { return *FindCalls(Streams(), kSizes, TorchRelease::k2_15); }

TEST(Census, FindsHowSizesFollowFromABatch) {
  const SymbolicStep step = StepOf();
  EXPECT_EQ(step.operators, 6);
  EXPECT_THAT(step.unknown, IsEmpty());
  ASSERT_EQ(step.calls.size(), 4u) << "equal calls once, free ones not at all";
  EXPECT_EQ(step.calls[0].integers[0].At(std::vector<int64_t>{7, 9}), 7);
  EXPECT_EQ(step.calls[1].integers[0].At(std::vector<int64_t>{7, 9}), 9);
  EXPECT_EQ(step.calls[2].integers[0].At(std::vector<int64_t>{7, 9}), 8);
}

TEST(Census, OneShapeNeedsOneStream) {
  const std::vector<std::vector<OpCall>> one{StreamAt(7, 9)};
  const auto step = FindCalls(one, std::vector<std::vector<int64_t>>{{7, 9}}, TorchRelease::k2_13);
  ASSERT_TRUE(step.ok()) << step.status();
  EntryCounter counter;
  EXPECT_EQ(counter.Add(*step, std::vector<int64_t>{7, 9}), 4);
}

TEST(Census, RefusesWhatDoesNotFollow) {
  const struct {
    const char* why;
    std::function<void(std::vector<OpCall>&)> change;  // changes the last stream
    const char* message;
  } kCases[] = {
      {"one call more", [](auto& s) { s.push_back(s[0]); }, "calls 6 operators, and 7"},
      {"another type", [](auto& s) { s[0].tensors[0].type = "Half"; }, "aten::mm is called as"},
      {"a scalar that changes", [](auto& s) { s[4].rest = "0.5"; }, "aten::threshold_backward is called as"},
      {"a size of its own", [](auto& s) { s[2].tensors[0].sizes[0] = 17; }, "200, 77, 90, 17"},
  };
  for (const auto& c : kCases) {
    std::vector<std::vector<OpCall>> streams = Streams();
    c.change(streams.back());
    const absl::Status status = FindCalls(streams, kSizes, TorchRelease::k2_15).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << c.why;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message)) << c.why;
  }
}

TEST(Census, EqualKeysAreOneEntryWhoeverMakesThem) {
  EntryCounter counter;
  const SymbolicStep step = StepOf();
  EXPECT_EQ(counter.Add(step, std::vector<int64_t>{60, 200}), 4);
  EXPECT_EQ(counter.Add(step, std::vector<int64_t>{60, 200}), 0) << "the same shape again";
  EXPECT_EQ(counter.Add(step, std::vector<int64_t>{60, 201}), 1) << "other edges";
  EXPECT_EQ(counter.Add(step, std::vector<int64_t>{200, 60}), 1)
      << "products of 200 and of 60 rows are there; the threshold is new";
  EXPECT_EQ(counter.of("aten::mm"), 4);
  EXPECT_EQ(counter.of("aten::threshold_backward"), 2);
}

TEST(Census, CountsAMode) {
  const SizedSchedule schedule{.shapes = {{{60, 200}, 5}, {{61, 200}, 1}, {{62, 210}, 1}}, .first_epoch = 2};
  const ModeCensus census = CountMode(StepOf(), schedule, {{62, 210}, 1});
  EXPECT_EQ(census.operators, 6);
  EXPECT_THAT(census.ops, ElementsAre(OpCensus{"aten::mm", 3, 4, 6}, OpCensus{"aten::threshold_backward", 1, 2, 3}));
  EXPECT_EQ(census.all, (OpCensus{"", 4, 6, 9}));
}

TEST(Census, CountsAPolicy) {
  const std::array<SymbolicStep, 2> steps{StepOf(), StepOf()};
  const SizedSchedule train{.shapes = {{{60, 200}, 5}, {{61, 200}, 1}}, .first_epoch = 1};
  const SizedSchedule eval{.shapes = {{{60, 200}, 2}}, .first_epoch = 1};
  const CensusRow kept = CountPolicy(steps, {train, eval}, /*empties=*/false);
  EXPECT_EQ(kept.train_shapes, 2);
  EXPECT_EQ(kept.eval_shapes, 1);
  EXPECT_EQ(kept.shape, 4);
  EXPECT_EQ(kept.epoch, 4) << "evaluation's keys are training's";
  EXPECT_EQ(kept.run, 6);
  EXPECT_EQ(kept.compiled, 6);
  const CensusRow emptied = CountPolicy(steps, {train, eval}, /*empties=*/true);
  EXPECT_EQ(emptied.run, 0);
  EXPECT_EQ(emptied.shape, 4);
  EXPECT_EQ(emptied.compiled, 4 * 8) << "every step compiles all of it";
}

// The nodes, edges and graphs of three shapes.
const std::vector<std::vector<int64_t>> kShapes{{60, 200, 9}, {31, 77, 4}, {37, 90, 7}};

TEST(FindSum, FindsThePlainestSum) {
  constexpr int64_t kElsewhere[] = {52, 61, 5};
  const struct {
    const char* why;
    std::vector<int64_t> values;
    int64_t elsewhere;
  } kCases[] = {
      {"nodes", {60, 31, 37}, 52},
      {"edges", {200, 77, 90}, 61},
      {"nodes and a constant", {61, 32, 38}, 53},
      {"graphs without a constant", {2, -3, 0}, -2},
      {"edges and nodes", {260, 108, 127}, 113},
      {"edges without nodes, and a constant", {143, 49, 56}, 12},
      {"twice the graphs", {18, 8, 14}, 10},
      {"64 times the nodes", {3840, 1984, 2368}, 3328},
      {"64 times the nodes and a constant", {3841, 1985, 2369}, 3329},
  };
  for (const auto& c : kCases) {
    const auto sum = FindSum(c.values, kShapes);
    ASSERT_TRUE(sum.has_value()) << c.why;
    for (size_t k = 0; k < kShapes.size(); ++k) EXPECT_EQ(sum->At(kShapes[k]), c.values[k]) << c.why;
    EXPECT_EQ(sum->At(kElsewhere), c.elsewhere) << c.why;
  }
}

TEST(FindSum, FindsNoneWhereThereIsNone) {
  const struct {
    const char* why;
    std::vector<int64_t> values;
  } kCases[] = {{"a square", {3600, 961, 1369}},
                {"half", {30, 15, 18}},
                {"a product", {540, 124, 259}},
                {"three sizes", {269, 112, 134}},
                {"anything", {1, 2, 4}}};
  for (const auto& c : kCases) EXPECT_FALSE(FindSum(c.values, kShapes).has_value()) << c.why;
}

TEST(FindSum, NothingFollowsFromNoSizes) {
  const std::vector<std::vector<int64_t>> none(3);
  EXPECT_FALSE(FindSum(std::vector<int64_t>{1, 2, 3}, none).has_value());
}

}  // namespace
}  // namespace permafrost::graphcache
