#include "train/planning/job_schedule.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <future>
#include <stop_token>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json_fields.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/batching/batch.h"
#include "device/backend.h"
#include "graphcache/shape_plan.h"
#include "nn/models/model.h"
#include "train/planning/batch_schedule.h"
#include "train/planning/run_size.h"
#include "train/tasks/job_data.h"
#include "train/tasks/node_model_for.h"
#include "train/tasks/program_trials.h"

namespace permafrost::train {
namespace {

namespace fs = std::filesystem;

// The versions of the two kinds of files. Raise a version whenever equal options lead to another plan, or to other
// sizes.
constexpr int kPlanVersion = 2, kSizesVersion = 2;
constexpr std::string_view kExtension = ".plan";

// Writes all digits, so that different values have different keys.
std::string Digits(double value) { return absl::StrFormat("%.17g", value); }

// Returns the three lines of a file: first the checksum of the other two, then the key, and then the plan.
std::string TextOf(const std::string& key, const std::string& body) {
  const std::string content = absl::StrCat(key, "\n", body, "\n");
  return absl::StrCat(HashHex(Hash64(content)), "\n", content);
}

struct PlanFile {
  std::string key, body;
};

absl::Status Damaged(const fs::path& path, std::string_view why) {
  return absl::DataLossError(absl::StrCat(path.string(), ": ", AbslView(why)));
}

absl::StatusOr<PlanFile> ReadPlan(const fs::path& path) {
  PF_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const size_t first = text.find('\n'), second = text.find('\n', first + 1);
  if (first == std::string::npos || second == std::string::npos) return Damaged(path, "is cut short");
  const std::string content = text.substr(first + 1);
  if (text.substr(0, first) != HashHex(Hash64(content)))
    return Damaged(path, "its checksum is not that of its content");
  return PlanFile{text.substr(first + 1, second - first - 1), text.substr(second + 1)};
}

// Sizes as one list of numbers. Each batch has, in this order: the rows of each segment, the edges, the nonzeros.
struct SizesText {
  int64_t train_segments = 0, eval_segments = 0;
  std::vector<int64_t> train, eval;
};

struct SizesSchema {
  template <class A>
  static void Fields(A& a, typename A::template Visited<SizesText>& s) {
    a("train_segments", s.train_segments);
    a("train", s.train);
    a("eval_segments", s.eval_segments);
    a("eval", s.eval);
  }
};

void Append(const std::vector<data::BlockSizes>& sizes, int64_t& segments, std::vector<int64_t>& numbers) {
  for (const data::BlockSizes& s : sizes) {
    segments = std::ssize(s.nodes);
    numbers.insert(numbers.end(), s.nodes.begin(), s.nodes.end());
    numbers.insert(numbers.end(), {s.edges, s.nonzeros});
  }
}

absl::StatusOr<std::vector<data::BlockSizes>> SizesOf(int64_t segments, const std::vector<int64_t>& numbers) {
  const auto each = static_cast<size_t>(segments) + 2;
  if (segments < 0 || (segments == 0 && !numbers.empty()) || numbers.size() % each != 0) {
    return absl::DataLossError(absl::StrCat("sampled sizes: ", numbers.size(), " numbers are not ", segments,
                                            " segments, edges and nonzeros of each batch"));
  }
  std::vector<data::BlockSizes> sizes;
  for (auto at = numbers.begin(); at != numbers.end(); at += static_cast<std::ptrdiff_t>(each)) {
    sizes.push_back({.nodes = {at, at + segments}, .edges = at[segments], .nonzeros = at[segments + 1]});
  }
  return sizes;
}

std::string ToJson(const SampledSizes& sizes) {
  SizesText text;
  Append(sizes[static_cast<size_t>(Mode::kTrain)], text.train_segments, text.train);
  Append(sizes[static_cast<size_t>(Mode::kEval)], text.eval_segments, text.eval);
  return WriteJson<SizesSchema>(text);
}

absl::StatusOr<SampledSizes> SampledSizesFromJson(const std::string& body) {
  PF_ASSIGN_OR_RETURN(const SizesText text, (ReadJson<SizesSchema, SizesText>("sampled sizes", body)));
  SampledSizes sizes;
  PF_ASSIGN_OR_RETURN(sizes[static_cast<size_t>(Mode::kTrain)], SizesOf(text.train_segments, text.train));
  PF_ASSIGN_OR_RETURN(sizes[static_cast<size_t>(Mode::kEval)], SizesOf(text.eval_segments, text.eval));
  return sizes;
}

// The time between two calls of `keep_going` while the schedule is walked.
constexpr std::chrono::milliseconds kStopInterval(20);
// The number of batches that the host holds at once: the batches made ready ahead, and the one in the step.
constexpr double kHostGraphSetBatches = 4;

// Walks the schedule on a thread of its own, while the calling thread checks whether to stop.
absl::StatusOr<graphcache::ShapeSchedule> WalkAside(const data::GraphExtents& graphs, const spec::TrainOptions& options,
                                                    int64_t rank, const std::function<bool()>& keep_going) {
  std::stop_source stop;
  auto plan = std::async(std::launch::async, [&] {
    return PlanShapes(graphs,
                      {.epochs = options.epochs,
                       .batch_size = options.batch_size,
                       .seed = options.seed,
                       .batching = options.batching,
                       .rank = rank,
                       .world_size = options.replicas},
                      stop.get_token());
  });
  while (plan.wait_for(kStopInterval) != std::future_status::ready) {
    if (!keep_going()) stop.request_stop();
  }
  return plan.get();
}

absl::StatusOr<graphcache::ShapeSchedule> FindOrWalk(const spec::TrainOptions& options,
                                                     const data::GraphExtents& graphs, const PlanContext& context,
                                                     bool ladder, const std::function<bool()>& keep_going) {
  const int64_t rungs = ladder ? RungsOf(options.graph_cache) : 0;
  const std::string key = ScheduleKey(options, graphs.set(), rungs, context.rank());
  if (context.plans != nullptr) {
    if (std::optional<graphcache::ShapeSchedule> kept = context.plans->Find(key)) {
      TellKept(context, key);
      return *std::move(kept);
    }
  }
  PF_ASSIGN_OR_RETURN(graphcache::ShapeSchedule plan, WalkAside(graphs, options, context.rank(), keep_going));
  if (rungs > 0) MakeLadders(rungs, plan);
  if (context.plans != nullptr) context.plans->Keep(key, plan);
  return plan;
}

// Returns the least shape that holds every batch of the job.
BatchShape LargestBatch(const graphcache::ShapeSchedule& plan) {
  std::vector<graphcache::ShapeCount> all = plan.eval_schedule;
  all.push_back({plan.train_ceiling, 1});
  return graphcache::Ceiling(all);
}

// Returns the bytes that a row of `features` takes in a prepared batch. Integers are widened to 8 bytes.
double HostBytesPerRow(const data::FeatureSummary& features) {
  const size_t bytes = features.type == data::DataType::kInt32 ? sizeof(int64_t) : sizeof(float);
  return static_cast<double>(features.width) * static_cast<double>(bytes);
}

void AppendRank(const spec::TrainOptions& options, int64_t rank, std::string& key) {
  if (options.replicas > 1) absl::StrAppend(&key, ", rank ", rank, " of ", options.replicas);
}

}  // namespace

std::string ScheduleKey(const spec::TrainOptions& options, const data::GraphSet& set, int64_t rungs, int64_t rank) {
  const spec::BatchingOptions& batching = options.batching;
  std::string key = absl::StrCat("plan ", kPlanVersion, " of set ", HashHex(set.checksum()), ", epochs ",
                                 options.epochs, ", batch size ", options.batch_size, ", seed ", options.seed, ", ",
                                 AbslView(spec::kBatchingNames.Name(batching.kind)), " ", batching.max_nodes, " ",
                                 batching.max_edges, ", rungs ", rungs);
  AppendRank(options, rank, key);
  return key;
}

std::string SampledKey(const spec::TrainOptions& options, const data::Graph& graph, bool means_elsewhere,
                       int64_t rank) {
  if (graph.checksum() == 0) return "";
  const spec::NodeTrainingOptions& nodes = options.nodes;
  std::string key = absl::StrCat(
      "sizes ", kSizesVersion, " of graph ", HashHex(graph.checksum()), ", batch size ", options.batch_size, ", seed ",
      options.seed, ", fan-outs ", absl::StrJoin(nodes.fan_outs, "/"), " ", absl::StrJoin(nodes.eval_fan_outs, "/"),
      ", ", static_cast<int>(nodes.sampler), " ", nodes.replace, " ", nodes.weighted, " ", nodes.disjoint, " ",
      static_cast<int>(nodes.temporal), " ", nodes.seed_time ? absl::StrCat(*nodes.seed_time) : "none", ", evaluated ",
      nodes.layer_wise_evaluation ? "layer by layer" : "by blocks");
  // The model decides whether the last hop has rows or means.
  for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
    absl::StrAppend(&key, ", ", SamplingOf(options, mode, graph.summary()).last_hop_apart ? "means" : "rows");
  }
  if (means_elsewhere) absl::StrAppend(&key, ", of means made elsewhere");
  AppendRank(options, rank, key);
  if (const spec::BatchingOptions& bounds = options.batching; bounds.max_nodes > 0 || bounds.max_edges > 0) {
    absl::StrAppend(&key, ", budget ", bounds.max_nodes, " ", bounds.max_edges);
  }
  const spec::LinkOptions& links = options.links;
  if (!links.enabled) return key;
  absl::StrAppend(&key, ", links ", links.given ? "given" : "drawn", " ", Digits(links.split.valid_part), " ",
                  Digits(links.split.test_part), " ", links.split.seed, ", negatives ", links.negatives, " ",
                  links.eval_negatives, " ", static_cast<int>(links.sampling));
  return key;
}

void ScheduleStore::Warn(std::string_view what, const absl::Status& status) const {
  warn_(absl::StrCat(AbslView(what), ": ", status.message()));
}

fs::path ScheduleStore::FileOf(const std::string& key) const {
  return directory_ / absl::StrCat(HashHex(Hash64(key)), AbslView(kExtension));
}

std::string ScheduleStore::NameOf(const std::string& key) const {
  return (directory_.filename() / FileOf(key).filename()).string();
}

template <class T, class Read>
std::optional<T> ScheduleStore::FindAs(const std::string& key, const Read& read) const {
  const fs::path path = FileOf(key);
  const auto find = [&]() -> absl::StatusOr<std::optional<T>> {
    PF_ASSIGN_OR_RETURN(const PlanFile file, ReadPlan(path));
    if (file.key != key) return std::nullopt;
    absl::StatusOr<T> plan = read(file.body);
    if (!plan.ok()) return Damaged(path, StdView(plan.status().message()));
    return *std::move(plan);
  };
  absl::StatusOr<std::optional<T>> found = find();
  if (found.ok()) return *std::move(found);
  if (!absl::IsNotFound(found.status())) Warn("a kept shape plan is made anew", found.status());
  return std::nullopt;
}

void ScheduleStore::KeepText(const std::string& key, const std::string& body) {
  const absl::MutexLock lock(&mu_);
  absl::Status written = CreateDirectories(directory_);
  if (written.ok()) written = WriteFileAtomic(FileOf(key), TextOf(key, body));
  if (!written.ok()) return Warn("a shape plan is not kept", written);
  RemoveOldest();
}

std::optional<graphcache::ShapeSchedule> ScheduleStore::Find(const std::string& key) const {
  return FindAs<graphcache::ShapeSchedule>(key, graphcache::ShapeScheduleFromJson);
}

void ScheduleStore::Keep(const std::string& key, const graphcache::ShapeSchedule& plan) {
  KeepText(key, graphcache::ToJson(plan));
}

std::optional<SampledSizes> ScheduleStore::FindSizes(const std::string& key) const {
  return FindAs<SampledSizes>(key, SampledSizesFromJson);
}

void ScheduleStore::KeepSizes(const std::string& key, const SampledSizes& sizes) { KeepText(key, ToJson(sizes)); }

void ScheduleStore::RemoveOldest() {
  const absl::StatusOr<std::optional<std::vector<std::string>>> names = ListDirectory(directory_);
  if (!names.ok() || !names->has_value()) return;
  std::vector<std::pair<fs::file_time_type, fs::path>> plans;
  for (const std::string& name : **names) {
    std::error_code error;
    fs::path path = directory_ / name;
    const fs::file_time_type written = fs::last_write_time(path, error);
    if (!error && path.extension() == kExtension) plans.emplace_back(written, std::move(path));
  }
  std::ranges::sort(plans);
  for (size_t i = 0; i + kMostSchedules < plans.size(); ++i) {
    // Only plans are removed, because a plan can be made again. A file that is not a plan stays.
    if (ReadPlan(plans[i].second).ok()) RemoveAll(plans[i].second).IgnoreError();
  }
}

void TellKept(const PlanContext& context, const std::string& key) {
  if (context.log) context.log(absl::StrCat("plan taken from ", context.plans->NameOf(key)));
}

absl::StatusOr<RunMemory> MemoryOf(const spec::TrainOptions& options, const nn::GraphModelOptions& model,
                                   const data::GraphSetSummary& summary, const graphcache::ShapeSchedule& plan,
                                   const MemoryLimits& limits, std::string_view prefix) {
  const BatchShape largest = LargestBatch(plan);
  const auto nodes = static_cast<double>(largest.nodes), edges = static_cast<double>(largest.edges);
  const auto predicted = static_cast<double>(summary.splits[1].graphs + summary.splits[2].graphs);
  const data::FeatureSummary read = WithNodeInputs(options.model.node_inputs, summary).node_features;
  const double positions = sizeof(float) * static_cast<double>(summary.position_columns);
  const double inputs = nodes * (HostBytesPerRow(read) + positions + sizeof(int64_t)) +
                        edges * (HostBytesPerRow(summary.edge_features) + 2 * sizeof(int64_t));
  PF_ASSIGN_OR_RETURN(const StepCost cost, CostOfStep(options, model, largest, prefix));
  RunMemory memory{.cost = cost.model,
                   .batch_bytes = kHostGraphSetBatches * inputs,
                   .result_bytes = predicted * static_cast<double>(model.num_targets) * sizeof(float),
                   .input_bytes = inputs};
  // Features that the server makes take 4 bytes for each node of the set.
  if (read.width != summary.node_features.width) {
    memory.batch_bytes += sizeof(float) * static_cast<double>(summary.all.nodes);
  }
  AddCopies(options.optimizer, memory);
  if (limits.records || limits.graphs) {
    const graphcache::GraphSizes train = SizesOf(summary);
    const graphcache::FreezePoint freeze = graphcache::FindFreezePoint(
        options.graph_cache.freeze_at, GraphsPerBatch(options, train), train, plan.known_train_shapes);
    memory.executables =
        graphcache::MostExecutables(options.graph_cache, plan, /*dynamic=*/limits.records, freeze.freeze_at);
  }
  if (limits.records) {
    memory.executable_bytes = cost.executable_bytes;
  }
  return memory;
}

absl::StatusOr<graphcache::ShapeSchedule> PlanJob(const spec::TrainOptions& options, const nn::GraphModelOptions& model,
                                                  const data::GraphExtents& graphs, const PlanContext& context,
                                                  std::string_view prefix, const std::function<bool()>& keep_going,
                                                  bool pads) {
  // If one executable is to serve every shape, no ladder is planned. If the capture of that executable fails, the
  // cache makes the ladder.
  const bool ladder = pads && WantsPadding(options.graph_cache, context.limits);
  PF_ASSIGN_OR_RETURN(graphcache::ShapeSchedule plan, FindOrWalk(options, graphs, context, ladder, keep_going));
  PF_ASSIGN_OR_RETURN(const RunMemory memory,
                      MemoryOf(options, model, graphs.set().summary(), plan, context.limits, prefix));
  const BatchShape largest = LargestBatch(plan);
  Violations violations;
  CheckFits(memory, context.limits,
            absl::StrCat("batches of up to ", largest.nodes, " nodes and ", largest.edges, " edges"), prefix,
            violations);
  CheckBatchIndex(largest, context.limits, prefix, violations);
  PF_RETURN_IF_ERROR(violations.ToStatus());
  return plan;
}

}  // namespace permafrost::train
