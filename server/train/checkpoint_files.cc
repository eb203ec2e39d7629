#include "train/checkpoint_files.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/status.h"
#include "base/string_view.h"

namespace permafrost::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Returns the step in the name of a checkpoint's folder, or nullopt if the folder is not a checkpoint's.
// ".damaged-7-2" is the second damaged checkpoint of step 7.
std::optional<int64_t> StepOf(std::string_view name, bool& set_aside) {
  set_aside = name.starts_with(kDamagedCheckpointPrefix);
  if (set_aside) name.remove_prefix(kDamagedCheckpointPrefix.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  const bool ends_there = end == name.data() + name.size() || (set_aside && *end == '-');
  return error == std::errc() && ends_there ? std::optional(step) : std::nullopt;
}

absl::Status Damage(const fs::path& file, std::string_view what) {
  return absl::DataLossError(absl::StrCat(file.filename().string(), ": ", AbslView(what)));
}

absl::StatusOr<std::string> HashOfFile(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return absl::UnavailableError(absl::StrCat(path.string(), ": cannot be opened"));
  StreamHash hash;
  std::vector<char> buffer(size_t{1} << 20);
  while (in.read(buffer.data(), static_cast<std::streamsize>(buffer.size())) || in.gcount() > 0) {
    hash.Update(buffer.data(), static_cast<size_t>(in.gcount()));
  }
  if (in.bad()) return absl::UnavailableError(absl::StrCat(path.string(), ": cannot be read"));
  return HashHex(hash.Digest());
}

// Errors: DataLoss if the file is damaged.
absl::Status CheckFile(const fs::path& path, uint64_t bytes, const std::string& hash, bool verify) {
  std::error_code error;
  const uint64_t found = fs::file_size(path, error);
  if (error == std::errc::no_such_file_or_directory) return Damage(path, "is missing");
  if (error) return absl::UnavailableError(absl::StrCat(path.string(), ": ", error.message()));
  if (found != bytes) return Damage(path, absl::StrCat("has ", found, " bytes in place of ", bytes));
  if (!verify) return absl::OkStatus();
  PF_ASSIGN_OR_RETURN(const std::string now, HashOfFile(path));
  return now == hash ? absl::OkStatus() : Damage(path, "checksum does not match");
}

// Fills `info` from as much of the manifest as can be read. Errors: DataLoss if the checkpoint is damaged.
absl::Status Inspect(const fs::path& directory, bool verify, CheckpointInfo& info) {
  const fs::path file = directory / kCheckpointManifest;
  const absl::StatusOr<std::string> text = ReadFile(file);
  if (absl::IsNotFound(text.status())) return Damage(file, "is missing");
  PF_RETURN_IF_ERROR(text.status());
  info.bytes = text->size();
  std::error_code error;
  const auto written = fs::last_write_time(file, error);
  if (!error) info.time = absl::FromChrono(std::chrono::file_clock::to_sys(written));
  const json manifest = json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!manifest.is_object() || !manifest.contains("checkpoint") || !manifest.contains("xxh3") ||
      manifest["xxh3"] != HashHex(Hash64(manifest["checkpoint"].dump())) || manifest.dump(1) != *text) {
    return Damage(file, "checksum does not match");
  }
  try {
    const json& body = manifest["checkpoint"];
    info.epochs_done = body.at("state").at("epoch");
    info.batch = body.at("state").at("batch");
    info.best_epoch = body.at("state").at("best_epoch");
    info.dataset_checksum = body.at("state").value("dataset_checksum", uint64_t{0});
    for (const auto& part : body.at("files").items()) {
      const uint64_t bytes = part.value().at("bytes");
      info.bytes += bytes;
      PF_RETURN_IF_ERROR(CheckFile(directory / part.key(), bytes, part.value().at("xxh3"), verify));
    }
  } catch (const json::exception& bad) {
    return Damage(file, bad.what());
  }
  return absl::OkStatus();
}

}  // namespace

fs::path ExportedWeightsFile(const fs::path& directory, int64_t step) {
  const fs::path checkpoint = directory / absl::StrCat(step);
  std::error_code error;
  const bool averages = fs::exists(checkpoint / kCheckpointAverages, error);
  return checkpoint / (averages ? kCheckpointAverages : kCheckpointWeights);
}

absl::StatusOr<std::vector<CheckpointInfo>> ListCheckpoints(const fs::path& directory, bool verify) {
  PF_ASSIGN_OR_RETURN(const std::optional<std::vector<std::string>> names, ListDirectory(directory));
  std::vector<CheckpointInfo> found;
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    bool set_aside = false;
    const std::optional<int64_t> step = StepOf(name, set_aside);
    if (!step) continue;
    CheckpointInfo info{.step = *step};
    absl::Status whole = Inspect(directory / name, verify, info);
    // The run may have removed this checkpoint meanwhile, because there are newer ones.
    std::error_code error;
    if (!whole.ok() && !fs::exists(directory / name, error)) continue;
    if (!whole.ok() && !absl::IsDataLoss(whole)) return whole;
    if (!whole.ok()) {
      info.damage = std::string(whole.message());
    } else if (set_aside) {
      info.damage = "was set aside as damaged";
    }
    found.push_back(std::move(info));
  }
  std::ranges::sort(found, std::ranges::greater(), &CheckpointInfo::step);
  return found;
}

}  // namespace permafrost::train
