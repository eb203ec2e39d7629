#include "train/plan_store.h"

#include <algorithm>
#include <array>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/status.h"
#include "base/string_view.h"
#include "graphcache/shape_plan_json.h"

namespace permafrost::train {
namespace {

namespace fs = std::filesystem;

// Raised whenever equal options lead to another plan than before.
constexpr int kPlanVersion = 1;
constexpr std::string_view kExtension = ".plan";

// A file is three lines: the checksum of the other two, the key, the plan.
std::string TextOf(const std::string& key, const graphcache::ShapePlan& plan) {
  const std::string content = absl::StrCat(key, "\n", graphcache::ToJson(plan), "\n");
  return absl::StrCat(HashHex(Hash64(content)), "\n", content);
}

struct PlanFile {
  std::string key;
  graphcache::ShapePlan plan;
};

absl::StatusOr<PlanFile> ReadPlan(const fs::path& path) {
  PF_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const auto damaged = [&path](std::string_view why) {
    return absl::DataLossError(absl::StrCat(path.string(), ": ", AbslView(why)));
  };
  const size_t first = text.find('\n'), second = text.find('\n', first + 1);
  if (first == std::string::npos || second == std::string::npos) return damaged("is cut short");
  const std::string content = text.substr(first + 1);
  if (text.substr(0, first) != HashHex(Hash64(content))) return damaged("its checksum is not that of its content");
  absl::StatusOr<graphcache::ShapePlan> plan = graphcache::ShapePlanFromJson(text.substr(second + 1));
  if (!plan.ok()) return damaged(StdView(plan.status().message()));
  return PlanFile{text.substr(first + 1, second - first - 1), *std::move(plan)};
}

}  // namespace

std::string PlanKey(const TrainOptions& options, const data::GraphSet& set, int64_t rungs) {
  const data::BatchingOptions& batching = options.batching;
  return absl::StrCat("plan ", kPlanVersion, " of set ", HashHex(set.checksum()), ", epochs ", options.epochs,
                      ", batch size ", options.batch_size, ", seed ", options.seed, ", ",
                      AbslView(data::kBatchingNames.Name(batching.kind)), " ", batching.max_nodes, " ",
                      batching.max_edges, ", rungs ", rungs);
}

void PlanStore::Warn(std::string_view what, const absl::Status& status) const {
  warn_(absl::StrCat(AbslView(what), ": ", status.message()));
}

fs::path PlanStore::FileOf(const std::string& key) const {
  return directory_ / absl::StrCat(HashHex(Hash64(key)), AbslView(kExtension));
}

std::optional<graphcache::ShapePlan> PlanStore::Find(const std::string& key) const {
  absl::StatusOr<PlanFile> file = ReadPlan(FileOf(key));
  if (absl::IsNotFound(file.status())) return std::nullopt;
  if (!file.ok()) {
    Warn("a kept shape plan is made anew", file.status());
    return std::nullopt;
  }
  if (file->key != key) return std::nullopt;
  return std::move(file->plan);
}

void PlanStore::Keep(const std::string& key, const graphcache::ShapePlan& plan) {
  const absl::MutexLock lock(&mu_);
  absl::Status written = CreateDirectories(directory_);
  if (written.ok()) written = WriteFileAtomic(FileOf(key), TextOf(key, plan));
  if (!written.ok()) return Warn("a shape plan is not kept", written);
  RemoveOldest();
}

void PlanStore::RemoveOldest() {
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
  for (size_t i = 0; i + kMostPlans < plans.size(); ++i) {
    // A plan can be made again; what is none may be anything.
    if (ReadPlan(plans[i].second).ok()) RemoveAll(plans[i].second).IgnoreError();
  }
}

}  // namespace permafrost::train
