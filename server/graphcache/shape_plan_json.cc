#include "graphcache/shape_plan_json.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "base/json_fields.h"
#include "base/status.h"

namespace permafrost::graphcache {
namespace {

// A plan has thousands of shapes: they stand as plain numbers, one after the other.
constexpr size_t kNumbersOfShape = 3, kNumbersOfCount = 4;

void Append(const BatchShape& shape, std::vector<int64_t>& numbers) {
  numbers.insert(numbers.end(), {shape.nodes, shape.edges, shape.graphs});
}

struct PlanText {
  std::vector<int64_t> train_ceiling, train_rungs, eval_rungs, train_schedule, eval_schedule, train_ladder, eval_ladder;
  int64_t train_shapes = 0, known_train_shapes = 0, ladder_rungs = 0;
};

struct PlanTextSchema {
  template <class A>
  static void Fields(A& a, typename A::template Visited<PlanText>& p) {
    a("train_ceiling", p.train_ceiling);
    a("train_shapes", p.train_shapes);
    a("known_train_shapes", p.known_train_shapes);
    a("train_rungs", p.train_rungs);
    a("eval_rungs", p.eval_rungs);
    a("train_schedule", p.train_schedule);
    a("eval_schedule", p.eval_schedule);
    a("ladder_rungs", p.ladder_rungs);
    a("train_ladder", p.train_ladder);
    a("eval_ladder", p.eval_ladder);
  }
};

std::vector<int64_t> NumbersOf(const std::vector<BatchShape>& shapes) {
  std::vector<int64_t> numbers;
  numbers.reserve(kNumbersOfShape * shapes.size());
  for (const BatchShape& shape : shapes) Append(shape, numbers);
  return numbers;
}

std::vector<int64_t> NumbersOf(const std::vector<ShapeCount>& counts) {
  std::vector<int64_t> numbers;
  numbers.reserve(kNumbersOfCount * counts.size());
  for (const ShapeCount& count : counts) {
    Append(count.shape, numbers);
    numbers.push_back(count.count);
  }
  return numbers;
}

absl::Status Check(const char* name, const std::vector<int64_t>& numbers, size_t of_each) {
  if (numbers.size() % of_each == 0) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("shape plan: ", name, " has ", numbers.size(), " numbers, not ", of_each, " for each shape"));
}

absl::StatusOr<std::vector<BatchShape>> ShapesOf(const char* name, const std::vector<int64_t>& numbers) {
  PF_RETURN_IF_ERROR(Check(name, numbers, kNumbersOfShape));
  std::vector<BatchShape> shapes;
  for (size_t i = 0; i < numbers.size(); i += kNumbersOfShape) {
    shapes.push_back({numbers[i], numbers[i + 1], numbers[i + 2]});
  }
  return shapes;
}

absl::StatusOr<std::vector<ShapeCount>> CountsOf(const char* name, const std::vector<int64_t>& numbers) {
  PF_RETURN_IF_ERROR(Check(name, numbers, kNumbersOfCount));
  std::vector<ShapeCount> counts;
  for (size_t i = 0; i < numbers.size(); i += kNumbersOfCount) {
    counts.push_back({{numbers[i], numbers[i + 1], numbers[i + 2]}, numbers[i + 3]});
  }
  return counts;
}

}  // namespace

std::string ToJson(const ShapePlan& plan) {
  PlanText text{.train_ceiling = NumbersOf(std::vector{plan.train_ceiling}),
                .train_rungs = NumbersOf(plan.train_rungs),
                .eval_rungs = NumbersOf(plan.eval_rungs),
                .train_schedule = NumbersOf(plan.train_schedule),
                .eval_schedule = NumbersOf(plan.eval_schedule),
                .train_ladder = {},
                .eval_ladder = {},
                .train_shapes = plan.train_shapes,
                .known_train_shapes = plan.known_train_shapes};
  if (plan.ladders) {
    text.ladder_rungs = plan.ladders->max_rungs;
    text.train_ladder = NumbersOf(plan.ladders->train);
    text.eval_ladder = NumbersOf(plan.ladders->eval);
  }
  return WriteJson<PlanTextSchema>(text);
}

absl::StatusOr<ShapePlan> ShapePlanFromJson(const std::string& text) {
  PF_ASSIGN_OR_RETURN(const PlanText read, (ReadJson<PlanTextSchema, PlanText>("shape plan", text)));
  ShapePlan plan{.train_shapes = read.train_shapes, .known_train_shapes = read.known_train_shapes};
  PF_ASSIGN_OR_RETURN(const std::vector<BatchShape> ceiling, ShapesOf("train_ceiling", read.train_ceiling));
  if (ceiling.size() != 1) return absl::DataLossError("shape plan: train_ceiling is not one shape");
  plan.train_ceiling = ceiling.front();
  PF_ASSIGN_OR_RETURN(plan.train_rungs, ShapesOf("train_rungs", read.train_rungs));
  PF_ASSIGN_OR_RETURN(plan.eval_rungs, ShapesOf("eval_rungs", read.eval_rungs));
  PF_ASSIGN_OR_RETURN(plan.train_schedule, CountsOf("train_schedule", read.train_schedule));
  PF_ASSIGN_OR_RETURN(plan.eval_schedule, CountsOf("eval_schedule", read.eval_schedule));
  if (read.ladder_rungs > 0) {
    plan.ladders.emplace(ShapePlan::Ladders{.max_rungs = read.ladder_rungs, .train = {}, .eval = {}});
    PF_ASSIGN_OR_RETURN(plan.ladders->train, ShapesOf("train_ladder", read.train_ladder));
    PF_ASSIGN_OR_RETURN(plan.ladders->eval, ShapesOf("eval_ladder", read.eval_ladder));
  }
  return plan;
}

}  // namespace permafrost::graphcache
