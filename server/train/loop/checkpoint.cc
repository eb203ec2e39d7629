#include "train/loop/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/status.h"
#include "base/string_view.h"
#include "nn/safetensors.h"
#include "train/checkpoint_files.h"

namespace permafrost::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kVersion = 1;
constexpr std::string_view kTemporaryPrefix = ".tmp-";
constexpr std::string_view kReplacedPrefix = ".old-";

// A part of a checkpoint that has a file of its own. One table of parts serves to write, read and name these files.
struct Part {
  std::string_view file;
  CheckpointPart tensors;
};
constexpr Part kWeights{kCheckpointWeights, &Checkpoint::model};
constexpr Part kBest{"best.safetensors", &Checkpoint::best};
constexpr Part kAveraged{kCheckpointAverages, &Checkpoint::averaged};
constexpr Part kParts[] = {kWeights,
                           {"optimizer.safetensors", &Checkpoint::optimizer},
                           {"accumulators.safetensors", &Checkpoint::accumulators},
                           kBest,
                           kAveraged};

// Returns null for NaN, since JSON has no NaN.
json NumberOrNull(double value) { return std::isnan(value) ? json() : json(value); }

json ToJson(const RunState& s) {
  json best_valid_metrics = json::array();
  for (const double metric : s.best_valid_metrics) best_valid_metrics.push_back(NumberOrNull(metric));
  return {{"step", s.step},
          {"epoch", s.position.epoch},
          {"batch", s.position.batch},
          {"best_epoch", s.best_epoch},
          {"best_valid_metric", NumberOrNull(s.best_valid_metric)},
          {"best_valid_metrics", std::move(best_valid_metrics)},
          {"train_seconds", s.train_seconds},
          {"epoch_seconds", s.epoch_seconds},
          {"seed", s.seed},
          {"threads", s.threads},
          {"dataset_checksum", s.dataset_checksum},
          {"rewinds", s.rewinds},
          {"skipped_steps", s.skipped_steps},
          {"plateau",
           {{"learning_rate", s.plateau.learning_rate},
            {"best", NumberOrNull(s.plateau.best)},
            {"bad_epochs", s.plateau.bad_epochs}}}};
}

RunState FromJson(const json& j) {
  RunState s;
  s.step = j.at("step");
  s.position = {j.at("epoch"), j.at("batch")};
  s.best_epoch = j.at("best_epoch");
  // In older versions, which had one metric, the field has this name.
  const json& best = j.contains("best_valid_mae") ? j.at("best_valid_mae") : j.at("best_valid_metric");
  if (!best.is_null()) s.best_valid_metric = best;
  if (const auto all = j.find("best_valid_metrics"); all != j.end()) {
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    for (const json& metric : *all) s.best_valid_metrics.push_back(metric.is_null() ? kNan : metric.get<double>());
  }
  s.train_seconds = j.at("train_seconds");
  s.epoch_seconds = j.at("epoch_seconds");
  s.seed = j.at("seed");
  s.threads = j.at("threads");
  // Older versions wrote no checksum.
  s.dataset_checksum = j.value("dataset_checksum", uint64_t{0});
  // Versions without rewinds wrote neither of these two fields.
  s.rewinds = j.value("rewinds", int64_t{0});
  s.skipped_steps = j.value("skipped_steps", std::vector<int64_t>());
  if (const auto plateau = j.find("plateau"); plateau != j.end()) {
    s.plateau.learning_rate = plateau->at("learning_rate");
    if (const json& value = plateau->at("best"); !value.is_null()) s.plateau.best = value;
    s.plateau.bad_epochs = plateau->at("bad_epochs");
  }
  return s;
}

// Reads a file of a complete checkpoint. Errors: DataLoss if the file is missing; another error if it cannot be read.
absl::StatusOr<std::string> ReadPart(const fs::path& path) {
  absl::StatusOr<std::string> data = ReadFile(path);
  if (absl::IsNotFound(data.status())) return absl::DataLossError(data.status().message());
  return data;
}

// Reads a file whose checksum in the manifest is `hash`. Returns its tensors if `wanted`, and otherwise none. The
// file's bytes are freed on return.
absl::StatusOr<std::vector<nn::NamedTensor>> ReadTensors(const fs::path& file, const std::string& hash, bool wanted) {
  PF_ASSIGN_OR_RETURN(const std::string data, ReadPart(file));
  if (HashHex(Hash64(data)) != hash) {
    return absl::DataLossError(absl::StrCat(file.string(), ": checksum does not match"));
  }
  if (!wanted) return std::vector<nn::NamedTensor>();
  absl::StatusOr<nn::SafetensorsFile> decoded = nn::DecodeSafetensors(data);
  if (!decoded.ok()) return Annotate(decoded.status(), file.string());
  return std::move(decoded->tensors);
}

absl::Status CheckVersion(const fs::path& file, const json& version) {
  if (version == kVersion) return absl::OkStatus();
  if (version.is_number_integer() && version > kVersion) {
    // The error is transient, because the checkpoint is intact: the build that wrote it can resume from it.
    return AsTransient(absl::FailedPreconditionError(
        absl::StrCat(file.string(), ": was written by a newer permafrostd (version ", version.dump(),
                     "); this one reads versions up to ", kVersion, "; start that one again, or a newer one")));
  }
  return absl::DataLossError(absl::StrCat(file.string(), ": version ", version.dump(), " is not known"));
}

// The learning rate is not lowered if it would fall by less than this, as with PyTorch's `eps`.
constexpr double kLeastFall = 1e-8;

bool IsProgress(const spec::OptimizerOptions& options, spec::Metric metric, double value, double best) {
  if (std::isnan(best)) return true;
  return spec::TraitsOf(metric).higher_is_better ? value > best * (1 + options.plateau_threshold)
                                                 : value < best * (1 - options.plateau_threshold);
}

}  // namespace

std::string RunStateToJson(const RunState& state) { return ToJson(state).dump(); }

absl::StatusOr<RunState> RunStateFromJson(const std::string& text) {
  try {
    return FromJson(json::parse(text));
  } catch (const json::exception& error) {
    return absl::DataLossError(absl::StrCat("the state of a run: ", error.what()));
  }
}

uint64_t TensorBytes(const Checkpoint& checkpoint) {
  uint64_t bytes = 0;
  for (const Part& part : kParts) {
    for (const nn::NamedTensor& tensor : checkpoint.*part.tensors) bytes += tensor.value.nbytes();
  }
  return bytes;
}

CheckpointStore::CheckpointStore(fs::path directory, int64_t keep, std::map<std::string, std::string> metadata,
                                 std::function<void(std::string_view)> warn)
    : directory_(std::move(directory)), keep_(keep), metadata_(std::move(metadata)), warn_(std::move(warn)) {}

fs::path CheckpointStore::WeightsFile(int64_t step) const { return directory_ / absl::StrCat(step) / kWeights.file; }
fs::path CheckpointStore::BestFile(int64_t step) const { return directory_ / absl::StrCat(step) / kBest.file; }
fs::path CheckpointStore::AveragedFile(int64_t step) const { return directory_ / absl::StrCat(step) / kAveraged.file; }

absl::StatusOr<std::vector<int64_t>> CheckpointStore::Steps() const {
  PF_ASSIGN_OR_RETURN(const std::optional<std::vector<std::string>> names, ListDirectory(directory_));
  std::vector<int64_t> steps;
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    int64_t step = 0;
    const auto [end, ec] = std::from_chars(name.data(), name.data() + name.size(), step);
    if (ec == std::errc() && end == name.data() + name.size()) steps.push_back(step);
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

absl::Status CheckpointStore::Save(const Checkpoint& checkpoint) {
  absl::Status saved = Write(checkpoint);
  // If someone removed the folder meanwhile, the next attempt makes it again.
  return absl::IsNotFound(saved) ? AsTransient(std::move(saved)) : saved;
}

absl::Status CheckpointStore::Write(const Checkpoint& checkpoint) {
  const int64_t step = checkpoint.state.step;
  const fs::path target = directory_ / absl::StrCat(step);
  const fs::path temporary = directory_ / absl::StrCat(AbslView(kTemporaryPrefix), step);
  PF_RETURN_IF_ERROR(RemoveAll(temporary));
  PF_RETURN_IF_ERROR(CreateDirectories(temporary));
  // The half-written folder is removed at once, because on a full disk the next attempt needs its space.
  absl::Cleanup remove_half_written = [&temporary] { RemoveAll(temporary).IgnoreError(); };
  PF_RETURN_IF_ERROR(WriteFiles(checkpoint, temporary));
  // If a stop came before the epoch's evaluation, the same step is saved twice, and the newer checkpoint also has the
  // evaluation. The older checkpoint is renamed rather than removed, so that a crash between the two renames loses
  // neither checkpoint.
  const fs::path replaced = directory_ / absl::StrCat(AbslView(kReplacedPrefix), step);
  absl::Status stepped_aside = Rename(target, replaced);
  if (!stepped_aside.ok() && !absl::IsNotFound(stepped_aside)) return stepped_aside;
  if (const absl::Status published = PublishDirectory(temporary, target); !published.ok()) {
    // The older checkpoint gets its name back. A resume would do that too, but its weights are needed under this name
    // even without a resume.
    if (stepped_aside.ok()) Rename(replaced, target).IgnoreError();
    return published;
  }
  PF_RETURN_IF_ERROR(RemoveAll(replaced));

  PF_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, Steps());
  for (size_t i = static_cast<size_t>(keep_); i < steps.size(); ++i) {
    PF_RETURN_IF_ERROR(RemoveAll(directory_ / absl::StrCat(steps[i])));
  }
  return absl::OkStatus();
}

absl::Status CheckpointStore::WriteFiles(const Checkpoint& checkpoint, const fs::path& directory) const {
  json files = json::object();
  for (const Part& part : kParts) {
    const auto& tensors = checkpoint.*part.tensors;
    if (tensors.empty()) continue;
    const std::string data = nn::EncodeSafetensors(tensors, metadata_);
    PF_RETURN_IF_ERROR(WriteFileSynced(directory / part.file, data));
    files[std::string(part.file)] = {{"bytes", data.size()}, {"xxh3", HashHex(Hash64(data))}};
  }
  json state = {{"version", kVersion}, {"state", ToJson(checkpoint.state)}, {"files", files}};
  if (checkpoint.cache) {
    state["graph_cache"] = {{"snapshot", json::parse(graphcache::ToJson(*checkpoint.cache))},
                            {"entries", json::parse(graphcache::ToJson(checkpoint.cache_entries))}};
  }
  // The manifest also has a hash of its own content, as dumped. The content is written in exactly these bytes, so
  // that any changed byte is noticed.
  const json manifest = {{"checkpoint", state}, {"xxh3", HashHex(Hash64(state.dump()))}};
  return WriteFileSynced(directory / kCheckpointManifest, manifest.dump(1));
}

absl::StatusOr<Checkpoint> CheckpointStore::Load(int64_t step, const TakePart& take) const {
  const fs::path directory = directory_ / absl::StrCat(step);
  PF_ASSIGN_OR_RETURN(const std::string text, ReadPart(directory / kCheckpointManifest));
  const json manifest = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!manifest.is_object() || !manifest.contains("checkpoint") || !manifest.contains("xxh3") ||
      manifest["xxh3"] != HashHex(Hash64(manifest["checkpoint"].dump())) || manifest.dump(1) != text) {
    return absl::DataLossError(absl::StrCat((directory / kCheckpointManifest).string(), ": checksum does not match"));
  }
  const json& body = manifest["checkpoint"];
  Checkpoint checkpoint;
  // The parts with their hashes. If a part has no file, its hash is empty.
  std::vector<std::pair<const Part*, std::string>> parts;
  try {
    PF_RETURN_IF_ERROR(CheckVersion(directory / kCheckpointManifest, body.at("version")));
    checkpoint.state = FromJson(body.at("state"));
    if (const auto cache = body.find("graph_cache"); cache != body.end()) {
      PF_ASSIGN_OR_RETURN(checkpoint.cache, graphcache::SnapshotFromJson(cache->at("snapshot").dump()));
      PF_ASSIGN_OR_RETURN(checkpoint.cache_entries, graphcache::EntriesFromJson(cache->at("entries").dump()));
    }
    for (const Part& part : kParts) {
      const auto entry = body.at("files").find(std::string(part.file));
      parts.emplace_back(&part, entry == body.at("files").end() ? "" : entry->at("xxh3").get<std::string>());
    }
  } catch (const json::exception& error) {
    return absl::DataLossError(absl::StrCat((directory / kCheckpointManifest).string(), ": ", error.what()));
  }
  for (const auto& [part, hash] : parts) {
    const bool wanted = part->tensors != kAveraged.tensors;
    std::vector<nn::NamedTensor> tensors;
    if (!hash.empty()) {
      PF_ASSIGN_OR_RETURN(tensors, ReadTensors(directory / part->file, hash, wanted));
    }
    if (wanted) PF_RETURN_IF_ERROR(take(part->tensors, tensors));
  }
  return checkpoint;
}

absl::Status CheckpointStore::LoadTensors(int64_t step, const TakePart& take) const {
  return Load(step, take).status();
}

absl::Status CheckpointStore::RepairAfterCrash() const {
  PF_ASSIGN_OR_RETURN(const std::optional<std::vector<std::string>> names, ListDirectory(directory_));
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    const fs::path path = directory_ / name;
    if (name.starts_with(kTemporaryPrefix)) PF_RETURN_IF_ERROR(RemoveAll(path));
    if (!name.starts_with(kReplacedPrefix)) continue;
    const std::string step = name.substr(kReplacedPrefix.size());
    if (std::ranges::find(*names, step) != names->end()) {
      PF_RETURN_IF_ERROR(RemoveAll(path));
    } else {
      PF_RETURN_IF_ERROR(Rename(path, directory_ / step));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckpointStore::SetAside(int64_t step) const {
  const std::string name = absl::StrCat(AbslView(kDamagedCheckpointPrefix), step);
  absl::Status renamed = Rename(directory_ / absl::StrCat(step), directory_ / name);
  // If a damaged checkpoint of this step was set aside before, its name is taken, since rename replaces no nonempty
  // directory.
  for (int n = 2; !renamed.ok() && fs::exists(directory_ / name) && n < 1000; ++n) {
    renamed = Rename(directory_ / absl::StrCat(step), directory_ / absl::StrCat(name, "-", n));
  }
  return renamed;
}

absl::StatusOr<std::optional<Checkpoint>> CheckpointStore::FindNewest() const {
  PF_RETURN_IF_ERROR(RepairAfterCrash());
  PF_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, Steps());
  std::vector<int64_t> damaged;
  for (const int64_t step : steps) {
    absl::StatusOr<Checkpoint> checkpoint =
        Load(step, [](CheckpointPart, const std::vector<nn::NamedTensor>&) { return absl::OkStatus(); });
    if (checkpoint.ok()) {
      // Newer damaged checkpoints are set aside. Otherwise they would count towards `keep`, and checkpoints of the
      // resumed run would be removed for them.
      for (const int64_t newer : damaged) PF_RETURN_IF_ERROR(SetAside(newer));
      return *std::move(checkpoint);
    }
    if (!absl::IsDataLoss(checkpoint.status())) {
      return Annotate(checkpoint.status(), absl::StrCat("checkpoint ", step, " cannot be read"));
    }
    warn_(absl::StrCat("checkpoint ", step, " is damaged and set aside: ", checkpoint.status().message()));
    damaged.push_back(step);
  }
  if (!damaged.empty()) {
    return absl::DataLossError(absl::StrCat(directory_.string(), ": all ", damaged.size(), " checkpoints are damaged"));
  }
  return std::nullopt;
}

namespace {

constexpr absl::Duration kFirstRetry = absl::Seconds(1);
constexpr absl::Duration kLastRetry = absl::Minutes(1);

}  // namespace

CheckpointSchedule::CheckpointSchedule(const spec::CheckpointOptions& options)
    : every_steps_(options.every_steps),
      every_(options.every_seconds > 0 ? absl::Seconds(options.every_seconds) : absl::InfiniteDuration()),
      interval_(every_ == absl::InfiniteDuration() ? every_ : std::min(every_, kFirst)),
      next_(interval_) {}

bool CheckpointSchedule::Due(int64_t step, absl::Duration now) const {
  if (retry_interval_ > absl::ZeroDuration()) return now >= next_;
  return now >= next_ || (every_steps_ > 0 && step % every_steps_ == 0);
}

void CheckpointSchedule::OnSaved(absl::Duration begin, absl::Duration end) {
  retry_interval_ = absl::ZeroDuration();
  if (every_ == absl::InfiniteDuration()) {
    next_ = every_;
    return;
  }
  interval_ = std::min(every_, 2 * interval_);
  next_ = end + std::max(interval_, (end - begin) * (1 / kMaxPart - 1));
}

void CheckpointSchedule::OnFailed(absl::Duration now) {
  retry_interval_ = std::clamp(2 * retry_interval_, kFirstRetry, kLastRetry);
  next_ = now + retry_interval_;
}

bool TakeEpoch(const spec::OptimizerOptions& options, spec::Metric metric, double value, PlateauState& state) {
  if (std::isnan(value)) return false;
  if (IsProgress(options, metric, value, state.best)) {
    state.best = value;
    state.bad_epochs = 0;
    return false;
  }
  if (++state.bad_epochs <= options.plateau_patience) return false;
  state.bad_epochs = 0;
  const double fallen = std::max(state.learning_rate * options.decay_factor, options.min_learning_rate);
  if (state.learning_rate - fallen <= kLeastFall) return false;
  state.learning_rate = fallen;
  return true;
}

}  // namespace permafrost::train
