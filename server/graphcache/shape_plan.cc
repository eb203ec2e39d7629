#include "graphcache/shape_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/json_fields.h"
#include "base/status.h"

namespace permafrost::graphcache {
namespace {

BatchShape Join(const BatchShape& a, const BatchShape& b) {
  return {std::max(a.nodes, b.nodes), std::max(a.edges, b.edges), std::max(a.graphs, b.graphs)};
}

bool FewerRows(const BatchShape& a, const BatchShape& b) { return std::tuple(Rows(a), a) < std::tuple(Rows(b), b); }

// Returns the distinct shapes, ordered by rows.
std::vector<ShapeCount> InOrder(const std::vector<ShapeCount>& shapes) {
  ShapeCounter counter;
  for (const ShapeCount& s : shapes) counter.Add(s.shape, s.count);
  std::vector<ShapeCount> ordered = counter.Counts();
  std::ranges::sort(ordered, FewerRows, &ShapeCount::shape);
  return ordered;
}

// Splits the shapes into at most `max_groups` groups of consecutive shapes. Chooses the split with the fewest rows if
// each batch is padded to its group's ceiling. The last group's ceiling is `top`. Returns the end of each group,
// exclusive. Uses dynamic programming over (shapes taken, groups made). Its costs leave out the batches' own rows,
// because these are equal for every split.
std::vector<size_t> GroupEnds(const std::vector<ShapeCount>& ordered, const BatchShape& top, size_t max_groups) {
  const size_t n = ordered.size();
  const size_t width = max_groups + 1;
  // best[j * width + k] is the fewest rows of the first j shapes in k groups. first[j * width + k] is where the last
  // of these groups begins.
  std::vector<int64_t> best((n + 1) * width, std::numeric_limits<int64_t>::max() / 2);
  std::vector<int32_t> first((n + 1) * width, 0);
  best[0] = 0;
  for (size_t j = 1; j <= n; ++j) {
    int64_t* const best_j = &best[j * width];
    int32_t* const first_j = &first[j * width];
    BatchShape ceiling = j == n ? top : BatchShape();
    int64_t count = 0;
    for (size_t i = j; i-- > 0;) {
      ceiling = Join(ceiling, ordered[i].shape);
      count += ordered[i].count;
      const int64_t rows = Rows(ceiling) * count;
      const int64_t* const best_i = &best[i * width];
      // Each earlier group has at least one shape, so the first i shapes form at most i groups.
      const size_t groups = std::min(max_groups - 1, i);
      for (size_t k = 0; k <= groups; ++k) {
        const int64_t total = best_i[k] + rows;
        const bool better = total < best_j[k + 1];
        best_j[k + 1] = better ? total : best_j[k + 1];
        first_j[k + 1] = better ? static_cast<int32_t>(i) : first_j[k + 1];
      }
    }
  }
  const int64_t* const last = &best[n * width];
  auto groups = static_cast<size_t>(std::min_element(last, last + width) - last);
  std::vector<size_t> ends;
  for (size_t j = n; groups > 0; --groups) {
    ends.push_back(j);
    j = static_cast<size_t>(first[j * width + groups]);
  }
  std::ranges::reverse(ends);
  return ends;
}

}  // namespace

void ShapeCounter::Add(const BatchShape& shape, int64_t count) {
  counts_[shape] += count;
  batches_ += count;
}

std::vector<ShapeCount> ShapeCounter::Counts() const {
  std::vector<ShapeCount> out;
  out.reserve(counts_.size());
  for (const auto& [shape, count] : counts_) out.push_back({shape, count});
  return out;
}

BatchShape Ceiling(const std::vector<ShapeCount>& shapes) {
  BatchShape ceiling;
  for (const ShapeCount& s : shapes) ceiling = Join(ceiling, s.shape);
  return ceiling;
}

int64_t Rows(const BatchShape& shape) { return shape.nodes + shape.edges; }

const BatchShape* FindCheapest(std::span<const BatchShape> shapes, const BatchShape& shape) {
  const BatchShape* best = nullptr;
  for (const BatchShape& s : shapes) {
    if (s.Holds(shape) && (best == nullptr || Rows(s) < Rows(*best))) best = &s;
  }
  return best;
}

std::vector<ShapeCount> MergeNeighbours(const std::vector<ShapeCount>& shapes) {
  const std::vector<ShapeCount> ordered = InOrder(shapes);
  const size_t width = (ordered.size() + kMaxLadderShapes - 1) / kMaxLadderShapes;
  std::vector<ShapeCount> merged;
  for (size_t i = 0; i < ordered.size(); ++i) {
    if (i % width == 0) merged.emplace_back();
    merged.back().shape = Join(merged.back().shape, ordered[i].shape);
    merged.back().count += ordered[i].count;
  }
  return merged;
}

std::vector<BatchShape> Ladder(const std::vector<ShapeCount>& shapes, int64_t max_rungs) {
  std::vector<ShapeCount> ordered = InOrder(shapes);
  const auto max_groups = static_cast<size_t>(std::max<int64_t>(max_rungs, 1));
  std::vector<BatchShape> rungs;
  if (ordered.size() <= max_groups) {
    for (const ShapeCount& s : ordered) rungs.push_back(s.shape);
    return rungs;
  }
  ordered = MergeNeighbours(ordered);
  const BatchShape top = Ceiling(ordered);
  size_t begin = 0;
  for (const size_t end : GroupEnds(ordered, top, std::min(max_groups, ordered.size()))) {
    BatchShape rung = end == ordered.size() ? top : BatchShape();
    for (; begin < end; ++begin) rung = Join(rung, ordered[begin].shape);
    rungs.push_back(rung);
  }
  std::ranges::sort(rungs, FewerRows);
  rungs.erase(std::ranges::unique(rungs).begin(), rungs.end());
  return rungs;
}

std::vector<BatchShape> LadderOf(const ShapeSchedule& plan, Mode mode, int64_t max_rungs) {
  if (plan.ladders && plan.ladders->max_rungs == max_rungs) {
    return mode == Mode::kTrain ? plan.ladders->train : plan.ladders->eval;
  }
  if (mode == Mode::kEval) {
    if (plan.eval_schedule.empty()) return plan.eval_rungs;
    return Ladder(plan.eval_schedule, std::min(max_rungs, kMaxEvalRungs));
  }
  if (!plan.train_schedule.empty()) return Ladder(plan.train_schedule, max_rungs);
  if (!plan.train_rungs.empty()) return plan.train_rungs;
  // A ceiling without a graph means that nothing was planned.
  return plan.train_ceiling.graphs > 0 ? std::vector<BatchShape>{plan.train_ceiling} : std::vector<BatchShape>();
}

void MakeLadders(int64_t max_rungs, ShapeSchedule& plan) {
  ShapeSchedule::Ladders ladders{.max_rungs = max_rungs,
                                 .train = LadderOf(plan, Mode::kTrain, max_rungs),
                                 .eval = LadderOf(plan, Mode::kEval, max_rungs)};
  plan.ladders = std::move(ladders);
}

namespace {

// A plan can have thousands of shapes, so JSON holds them as one list of numbers.
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

std::string ToJson(const ShapeSchedule& plan) {
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

absl::StatusOr<ShapeSchedule> ShapeScheduleFromJson(const std::string& text) {
  PF_ASSIGN_OR_RETURN(const PlanText read, (ReadJson<PlanTextSchema, PlanText>("shape plan", text)));
  ShapeSchedule plan{.train_shapes = read.train_shapes, .known_train_shapes = read.known_train_shapes};
  PF_ASSIGN_OR_RETURN(const std::vector<BatchShape> ceiling, ShapesOf("train_ceiling", read.train_ceiling));
  if (ceiling.size() != 1) return absl::DataLossError("shape plan: train_ceiling is not one shape");
  plan.train_ceiling = ceiling.front();
  PF_ASSIGN_OR_RETURN(plan.train_rungs, ShapesOf("train_rungs", read.train_rungs));
  PF_ASSIGN_OR_RETURN(plan.eval_rungs, ShapesOf("eval_rungs", read.eval_rungs));
  PF_ASSIGN_OR_RETURN(plan.train_schedule, CountsOf("train_schedule", read.train_schedule));
  PF_ASSIGN_OR_RETURN(plan.eval_schedule, CountsOf("eval_schedule", read.eval_schedule));
  if (read.ladder_rungs > 0) {
    plan.ladders.emplace(ShapeSchedule::Ladders{.max_rungs = read.ladder_rungs, .train = {}, .eval = {}});
    PF_ASSIGN_OR_RETURN(plan.ladders->train, ShapesOf("train_ladder", read.train_ladder));
    PF_ASSIGN_OR_RETURN(plan.ladders->eval, ShapesOf("eval_ladder", read.eval_ladder));
  }
  return plan;
}

namespace {

constexpr double kLeastFreezeAt = 5;
// 2^53: above it, doubles do not represent every integer. No schedule has so many shapes.
constexpr double kMostFreezeAt = 9007199254740992.0;

std::string NoFormulaReason(const GraphSizes& sizes, double effective_size) {
  if (sizes.graphs <= 0) return "the train split has no graphs to derive a freeze point from";
  if (!std::isfinite(effective_size)) return "the sizes of the train split's graphs have no finite standard deviation";
  if (sizes.std_nodes == 0) return "all graphs of the train split have equally many nodes";
  if (sizes.std_edges == 0) return "all graphs of the train split have equally many edges";
  return "";
}

}  // namespace

FreezePoint FindFreezePoint(int64_t explicit_freeze_at, int64_t batch_size, const GraphSizes& sizes,
                            int64_t planned_shapes) {
  if (explicit_freeze_at > 0) return {.freeze_at = explicit_freeze_at, .source = FreezeSource::kExplicit};
  const double root = std::sqrt(static_cast<double>(batch_size));
  const double effective_size = root * sizes.std_nodes * root * sizes.std_edges * 2 * std::numbers::pi;
  if (std::string reason = NoFormulaReason(sizes, effective_size); !reason.empty()) {
    return {.freeze_at = std::clamp<int64_t>(planned_shapes, 0, kMaxScheduleFreezeAt),
            .source = planned_shapes > 0 ? FreezeSource::kSchedule : FreezeSource::kNone,
            .no_formula_reason = std::move(reason)};
  }
  const double freeze_at = std::clamp(std::sqrt(effective_size), kLeastFreezeAt, kMostFreezeAt);
  return {
      .freeze_at = static_cast<int64_t>(freeze_at), .source = FreezeSource::kFormula, .effective_size = effective_size};
}

namespace {

// Returns the shapes that a freeze captures for a mode of exact shapes. For a dynamic mode, returns all planned
// shapes, because its one executable is captured whatever on_miss is.
std::vector<BatchShape> Sealing(const spec::PolicyOptions& options, const ShapeSchedule& plan, Mode mode, Form form) {
  std::vector<BatchShape> shapes;
  // If batches are rounded up to rungs, the freeze captures the rungs. Otherwise, if on_miss pads or rejects a miss, it
  // captures the shapes to which batches are padded. If on_miss runs a miss eagerly, or drops the executable that it
  // captures, the cache holds only the shapes that have occurred, like the cache of #10689.
  const bool at_rungs = !plan.train_rungs.empty();
  const bool pads = options.on_miss == spec::OnMiss::kPad || form == Form::kDynamic;
  if (mode == Mode::kEval) {
    // Evaluation rungs are sealed for kReject too, because otherwise the first evaluation after the freeze would fail
    // the job.
    return at_rungs || pads || options.on_miss == spec::OnMiss::kReject ? plan.eval_rungs : shapes;
  }
  if (!at_rungs && !pads) return shapes;
  // A ceiling without a graph means that nothing was planned.
  if (plan.train_ceiling.graphs > 0) shapes.push_back(plan.train_ceiling);
  for (const BatchShape& rung : plan.train_rungs) {
    if (rung != plan.train_ceiling) shapes.push_back(rung);
  }
  return shapes;
}

PlannedMode Wanted(const spec::PolicyOptions& options, const ShapeSchedule& plan, Mode mode, Form form,
                   int64_t freeze_at) {
  PlannedMode planned{.form = form, .shapes = Sealing(options, plan, mode, form)};
  if (form == Form::kLadder) {
    planned.shapes = LadderOf(plan, mode, RungsOf(options));
    if (planned.shapes.empty()) planned.form = Form::kExact;
  }
  planned.wanted = std::ssize(planned.shapes);
  if (form == Form::kDynamic) planned.wanted = std::min<int64_t>(planned.wanted, 1);
  if (form == Form::kExact && mode == Mode::kTrain && plan.train_rungs.empty()) {
    const int64_t known = plan.known_train_shapes;
    planned.wanted += freeze_at > 0 && known > 0 ? std::min(freeze_at, known) : std::max(freeze_at, known);
  }
  return planned;
}

// Returns at most `most` shapes, which replace the mode's planned shapes if the limit leaves no room for all of them.
std::vector<BatchShape> Fewer(const ShapeSchedule& plan, Mode mode, int64_t most) {
  std::vector<BatchShape> rungs = LadderOf(plan, mode, most);
  if (std::ssize(rungs) <= most) return rungs;
  // The plan does not say how many batches each rung has, so each rung counts once.
  std::vector<ShapeCount> counts;
  for (const BatchShape& rung : rungs) counts.push_back({rung, 1});
  return Ladder(counts, most);
}

void Cut(const ShapeSchedule& plan, Mode mode, PlannedMode& planned) {
  if (planned.form == Form::kDynamic || std::ssize(planned.shapes) <= planned.most) return;
  if (planned.most == 0) {
    planned.shapes.clear();
    planned.form = Form::kExact;
    return;
  }
  planned.shapes = Fewer(plan, mode, planned.most);
  // The ceiling must be the first exact shape to be captured.
  if (planned.form == Form::kExact && mode == Mode::kTrain) {
    std::ranges::rotate(planned.shapes, planned.shapes.end() - 1);
  }
}

}  // namespace

int64_t LimitOf(const spec::PolicyOptions& options) {
  return options.max_executables > 0 ? options.max_executables : std::numeric_limits<int64_t>::max();
}

PlannedSet PlanExecutables(const spec::PolicyOptions& options, const ShapeSchedule& plan, std::array<Form, 2> forms,
                           int64_t freeze_at) {
  PlannedSet set;
  for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
    const auto i = static_cast<size_t>(mode);
    set[i] = Wanted(options, plan, mode, forms[i], freeze_at);
  }
  PlannedMode& train = set[static_cast<size_t>(Mode::kTrain)];
  PlannedMode& eval = set[static_cast<size_t>(Mode::kEval)];
  const int64_t limit = LimitOf(options);
  eval.most = std::min(eval.wanted, std::max(limit / 2, limit - train.wanted));
  train.most = std::min(train.wanted, limit - eval.most);
  Cut(plan, Mode::kTrain, train);
  Cut(plan, Mode::kEval, eval);
  return set;
}

int64_t MostExecutables(const spec::PolicyOptions& options, int64_t shapes) {
  // Under kClearPerStep, an executable is held only for one step.
  if (KeepsNothing(options.policy)) return options.policy == spec::Policy::kClearPerStep ? 1 : 0;
  return std::min(LimitOf(options), shapes);
}

int64_t MostExecutables(const spec::PolicyOptions& options, const ShapeSchedule& plan, bool dynamic,
                        int64_t freeze_at) {
  const auto of = [](const auto& list, int64_t most) { return std::min<int64_t>(std::ssize(list), most); };
  if (KeepsNothing(options.policy)) return MostExecutables(options, 1);
  const int64_t limit = LimitOf(options);
  if (dynamic && WantsDynamic(options)) return std::min<int64_t>(2, limit);
  if (WantsLadder(options)) {
    return std::min(limit, of(plan.train_schedule, RungsOf(options)) +
                               of(plan.eval_schedule, std::min(RungsOf(options), kMaxEvalRungs)));
  }
  if (options.policy == spec::Policy::kFreeze) {
    // If misses are padded, training also holds the ceiling. If a freeze does not capture rungs for evaluation,
    // evaluation holds the shapes that occur.
    const bool pads = options.on_miss == spec::OnMiss::kPad;
    const bool seals_eval = pads || options.on_miss == spec::OnMiss::kReject || !plan.train_rungs.empty();
    return std::min(limit, std::min(freeze_at, plan.known_train_shapes) + (pads ? 1 : 0) +
                               (seals_eval ? of(plan.eval_rungs, kMaxEvalRungs) : std::ssize(plan.eval_schedule)));
  }
  return std::min(limit, plan.known_train_shapes + std::ssize(plan.eval_schedule));
}

}  // namespace permafrost::graphcache
