#include "train/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/status.h"
#include "base/string_view.h"
#include "nn/safetensors.h"

namespace permafrost::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kVersion = 1;
constexpr std::string_view kStateFile = "state.json";
constexpr std::string_view kTemporaryPrefix = ".tmp-";
constexpr std::string_view kReplacedPrefix = ".old-";

// One table for both directions and for the files' names.
struct Part {
  std::string_view file;
  std::vector<nn::NamedTensor> Checkpoint::*tensors;
};
constexpr Part kWeights{"model.safetensors", &Checkpoint::model};
constexpr Part kBest{"best.safetensors", &Checkpoint::best};
constexpr Part kParts[] = {kWeights,
                           {"optimizer.safetensors", &Checkpoint::optimizer},
                           {"accumulators.safetensors", &Checkpoint::accumulators},
                           kBest};

json ToJson(const RunState& s) {
  return {{"step", s.step},
          {"epoch", s.position.epoch},
          {"batch", s.position.batch},
          {"best_epoch", s.best_epoch},
          // JSON has no NaN.
          {"best_valid_metric", std::isnan(s.best_valid_metric) ? json() : json(s.best_valid_metric)},
          {"train_seconds", s.train_seconds},
          {"epoch_seconds", s.epoch_seconds},
          {"seed", s.seed},
          {"threads", s.threads}};
}

RunState FromJson(const json& j) {
  RunState s;
  s.step = j.at("step");
  s.position = {j.at("epoch"), j.at("batch")};
  s.best_epoch = j.at("best_epoch");
  // Its name before there were other metrics.
  const json& best = j.contains("best_valid_mae") ? j.at("best_valid_mae") : j.at("best_valid_metric");
  if (!best.is_null()) s.best_valid_metric = best;
  s.train_seconds = j.at("train_seconds");
  s.epoch_seconds = j.at("epoch_seconds");
  s.seed = j.at("seed");
  s.threads = j.at("threads");
  return s;
}

}  // namespace

CheckpointStore::CheckpointStore(fs::path directory, int64_t keep, std::map<std::string, std::string> metadata,
                                 std::function<void(std::string_view)> warn)
    : directory_(std::move(directory)), keep_(keep), metadata_(std::move(metadata)), warn_(std::move(warn)) {}

fs::path CheckpointStore::WeightsFile(int64_t step) const { return directory_ / absl::StrCat(step) / kWeights.file; }
fs::path CheckpointStore::BestFile(int64_t step) const { return directory_ / absl::StrCat(step) / kBest.file; }

std::vector<int64_t> CheckpointStore::Steps() const {
  std::vector<int64_t> steps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory_, error)) {
    const std::string name = entry.path().filename().string();
    int64_t step = 0;
    const auto [end, ec] = std::from_chars(name.data(), name.data() + name.size(), step);
    if (ec == std::errc() && end == name.data() + name.size()) steps.push_back(step);
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

absl::Status CheckpointStore::Save(const Checkpoint& checkpoint) {
  const int64_t step = checkpoint.state.step;
  const fs::path target = directory_ / absl::StrCat(step);
  const fs::path temporary = directory_ / absl::StrCat(AbslView(kTemporaryPrefix), step);
  PF_RETURN_IF_ERROR(RemoveAll(temporary));
  PF_RETURN_IF_ERROR(CreateDirectories(temporary));
  json files = json::object();
  for (const Part& part : kParts) {
    const auto& tensors = checkpoint.*part.tensors;
    if (tensors.empty()) continue;
    const std::string data = nn::EncodeSafetensors(tensors, metadata_);
    PF_RETURN_IF_ERROR(WriteFileSynced(temporary / part.file, data));
    files[std::string(part.file)] = {{"bytes", data.size()}, {"xxh3", HashHex(Hash64(data))}};
  }
  json state = {{"version", kVersion}, {"state", ToJson(checkpoint.state)}, {"files", files}};
  if (checkpoint.cache) {
    state["graph_cache"] = {{"snapshot", json::parse(graphcache::ToJson(*checkpoint.cache))},
                            {"entries", json::parse(graphcache::ToJson(checkpoint.cache_entries))}};
  }
  // The manifest checks itself, too: its hash is over the dump of what it wraps.
  const json manifest = {{"checkpoint", state}, {"xxh3", HashHex(Hash64(state.dump()))}};
  PF_RETURN_IF_ERROR(WriteFileSynced(temporary / kStateFile, manifest.dump(1)));
  // The same step again (a stop came before the epoch's evaluation): the newer one says more. The older one steps aside
  // rather than go, so that a crash between the two renames loses neither.
  const fs::path replaced = directory_ / absl::StrCat(AbslView(kReplacedPrefix), step);
  std::error_code none_there;
  fs::rename(target, replaced, none_there);
  PF_RETURN_IF_ERROR(PublishDirectory(temporary, target));
  PF_RETURN_IF_ERROR(RemoveAll(replaced));

  const std::vector<int64_t> steps = Steps();
  for (size_t i = static_cast<size_t>(keep_); i < steps.size(); ++i) {
    PF_RETURN_IF_ERROR(RemoveAll(directory_ / absl::StrCat(steps[i])));
  }
  return absl::OkStatus();
}

absl::StatusOr<Checkpoint> CheckpointStore::Load(int64_t step) const {
  const fs::path directory = directory_ / absl::StrCat(step);
  PF_ASSIGN_OR_RETURN(const std::string text, ReadFile(directory / kStateFile));
  const json manifest = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!manifest.is_object() || !manifest.contains("checkpoint") || !manifest.contains("xxh3") ||
      manifest["xxh3"] != HashHex(Hash64(manifest["checkpoint"].dump()))) {
    return absl::DataLossError(absl::StrCat((directory / kStateFile).string(), ": checksum does not match"));
  }
  const json& body = manifest["checkpoint"];
  if (body.at("version") != kVersion) {
    return absl::DataLossError(absl::StrCat((directory / kStateFile).string(), ": version ", body.at("version").dump(),
                                            ": this build reads ", kVersion));
  }
  Checkpoint checkpoint;
  checkpoint.state = FromJson(body.at("state"));
  if (const auto cache = body.find("graph_cache"); cache != body.end()) {
    PF_ASSIGN_OR_RETURN(checkpoint.cache, graphcache::SnapshotFromJson(cache->at("snapshot").dump()));
    PF_ASSIGN_OR_RETURN(checkpoint.cache_entries, graphcache::EntriesFromJson(cache->at("entries").dump()));
  }
  for (const Part& part : kParts) {
    const auto entry = body.at("files").find(std::string(part.file));
    if (entry == body.at("files").end()) continue;
    const fs::path file = directory / part.file;
    PF_ASSIGN_OR_RETURN(const std::string data, ReadFile(file));
    if (HashHex(Hash64(data)) != entry->at("xxh3").get<std::string>()) {
      return absl::DataLossError(absl::StrCat(file.string(), ": checksum does not match"));
    }
    auto decoded = nn::DecodeSafetensors(data);
    if (!decoded.ok()) return Annotate(decoded.status(), file.string());
    checkpoint.*part.tensors = std::move(decoded->tensors);
  }
  return checkpoint;
}

absl::Status CheckpointStore::RepairAfterCrash() const {
  std::error_code error;
  std::vector<fs::path> leavings;
  for (const auto& entry : fs::directory_iterator(directory_, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kTemporaryPrefix)) leavings.push_back(entry.path());
    if (!name.starts_with(kReplacedPrefix)) continue;
    const fs::path original = directory_ / name.substr(kReplacedPrefix.size());
    if (fs::exists(original)) {
      leavings.push_back(entry.path());
    } else {
      fs::rename(entry.path(), original, error);
    }
  }
  for (const fs::path& path : leavings) PF_RETURN_IF_ERROR(RemoveAll(path));
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Checkpoint>> CheckpointStore::LoadNewest() const {
  PF_RETURN_IF_ERROR(RepairAfterCrash());
  const std::vector<int64_t> steps = Steps();
  for (size_t i = 0; i < steps.size(); ++i) {
    const int64_t step = steps[i];
    absl::StatusOr<Checkpoint> checkpoint = Load(step);
    if (checkpoint.ok()) {
      // A damaged one that is newer would count among those kept, in place of what the resumed run saves.
      for (size_t damaged = 0; damaged < i; ++damaged) {
        PF_RETURN_IF_ERROR(RemoveAll(directory_ / absl::StrCat(steps[damaged])));
      }
      return *std::move(checkpoint);
    }
    warn_(absl::StrCat("checkpoint ", step, " is damaged and passed over: ", checkpoint.status().message()));
  }
  if (!steps.empty()) {
    return absl::DataLossError(absl::StrCat(directory_.string(), ": all ", steps.size(), " checkpoints are damaged"));
  }
  return std::nullopt;
}

}  // namespace permafrost::train
