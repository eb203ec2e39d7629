#include "backup/manifest.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/status.h"

namespace permafrost::backup {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kBackupFormat = 1;
constexpr char kUnnamedManifest[] = ".backup.json";
constexpr char kMakingText[] = "{\"backup\": \"in the making\"}\n";

absl::Status CheckBackedUpFile(const fs::path& path, const CopiedFile& wanted) {
  std::error_code error;
  const uintmax_t bytes = fs::file_size(path, error);
  if (error == std::errc::no_such_file_or_directory) {
    return absl::DataLossError(absl::StrCat(path.string(), " is missing"));
  }
  if (error) return absl::UnavailableError(absl::StrCat(path.string(), ": ", error.message()));
  if (bytes != wanted.bytes) {
    return absl::DataLossError(absl::StrCat(path.string(), " has ", bytes, " bytes in place of ", wanted.bytes));
  }
  std::ifstream in(path, std::ios::binary);
  StreamHash hash;
  std::vector<char> piece(size_t{1} << 20);
  while (in.read(piece.data(), static_cast<std::streamsize>(piece.size())) || in.gcount() > 0) {
    hash.Update(piece.data(), static_cast<size_t>(in.gcount()));
  }
  if (in.bad()) return absl::UnavailableError(absl::StrCat(path.string(), ": cannot be read"));
  if (HashHex(hash.Digest()) == wanted.xxh3) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(path.string(), ": checksum does not match"));
}

absl::Status PutManifestText(const fs::path& directory, const std::string& text) {
  const fs::path written = directory / kUnnamedManifest;
  PF_RETURN_IF_ERROR(WriteFileSynced(written, text));
  return Rename(written, directory / kManifestFile);
}

}  // namespace

absl::Status MarkInTheMaking(const fs::path& directory) { return PutManifestText(directory, kMakingText); }

bool IsInTheMaking(const fs::path& directory) {
  const auto names = ListDirectory(directory);
  if (!names.ok() || !names->has_value()) return false;
  if (std::ranges::all_of(**names, [](const std::string& name) { return name == kUnnamedManifest; })) return true;
  const absl::StatusOr<std::string> text = ReadFile(directory / kManifestFile);
  return text.ok() && *text == kMakingText;
}

absl::Status WriteManifest(const fs::path& directory, const Manifest& manifest) {
  json files = json::object();
  for (const auto& [path, file] : manifest.files) files[path] = {{"bytes", file.bytes}, {"xxh3", file.xxh3}};
  std::vector<std::string> anew;
  anew.reserve(manifest.jobs_anew.size());
  for (const JobId& job : manifest.jobs_anew) anew.push_back(job.value());
  const json backup = {{"format", kBackupFormat},
                       {"version", manifest.version},
                       {"create_time", absl::FormatTime(absl::RFC3339_sec, manifest.create_time, absl::UTCTimeZone())},
                       {"request_id", manifest.request_id},
                       {"jobs", manifest.jobs},
                       {"datasets_wanted", manifest.datasets_wanted},
                       {"jobs_anew", anew},
                       {"imports", manifest.imports},
                       {"files", files}};
  const json wrapped = {{"backup", backup}, {"xxh3", HashHex(Hash64(backup.dump()))}};
  return PutManifestText(directory, wrapped.dump(1) + "\n");
}

absl::StatusOr<std::optional<Manifest>> ReadManifest(const fs::path& directory, const std::string& file) {
  const fs::path path = directory / file;
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (absl::IsNotFound(text.status())) return std::nullopt;
  PF_RETURN_IF_ERROR(text.status());
  const auto damaged = [&path] {
    return absl::DataLossError(absl::StrCat(path.string(), ": is not what the backup's was; copy the backup again"));
  };
  if (*text == kMakingText) {
    return absl::DataLossError(absl::StrCat(directory.string(), " is a part of a backup that was never finished"));
  }
  const json wrapped = json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!wrapped.is_object() || !wrapped.contains("backup") || !wrapped.contains("xxh3") ||
      wrapped["xxh3"] != HashHex(Hash64(wrapped["backup"].dump()))) {
    return damaged();
  }
  const json& backup = wrapped["backup"];
  try {
    if (backup.at("format") != kBackupFormat) {
      return absl::FailedPreconditionError(absl::StrCat(path.string(), ": format ", backup.at("format").dump(),
                                                        " is not known; this build reads ", kBackupFormat));
    }
    Manifest manifest;
    manifest.version = backup.at("version");
    std::string error;
    absl::ParseTime(absl::RFC3339_sec, backup.at("create_time").get<std::string>(), &manifest.create_time, &error);
    // The fields below are absent from backups of older versions.
    manifest.request_id = backup.value("request_id", "");
    manifest.jobs = backup.value("jobs", int64_t{0});
    manifest.datasets_wanted = backup.value("datasets_wanted", std::vector<std::string>());
    for (const std::string& job : backup.value("jobs_anew", std::vector<std::string>()))
      manifest.jobs_anew.emplace_back(job);
    manifest.imports = backup.value("imports", std::vector<std::string>());
    for (const auto& item : backup.at("files").items()) {
      manifest.files[item.key()] = {.bytes = item.value().at("bytes"), .xxh3 = item.value().at("xxh3")};
    }
    return std::optional<Manifest>(std::move(manifest));
  } catch (const json::exception&) {
    return damaged();
  }
}

absl::Status CheckFiles(const fs::path& directory, const Manifest& manifest) {
  for (const auto& [path, file] : manifest.files) PF_RETURN_IF_ERROR(CheckBackedUpFile(directory / path, file));
  return absl::OkStatus();
}

}  // namespace permafrost::backup
