#include "backup/database_copy.h"

#include <SQLiteCpp/SQLiteCpp.h>

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "jobs/job_schema.h"

namespace permafrost::backup {
namespace {

// For whoever else holds the file for a moment.
constexpr int kPatienceMilliseconds = 30'000;

absl::Status WithDatabase(const std::filesystem::path& path, int flags,
                          const std::function<absl::Status(SQLite::Database&)>& body) {
  std::optional<SQLite::Database> database;
  try {
    database.emplace(path.string(), flags, kPatienceMilliseconds);
    return body(*database);
  } catch (const SQLite::Exception& error) {
    const int system_error =
        database ? jobs::SystemErrorOf(database->getHandle(), error) : jobs::WhyNotOpened(path.string());
    return jobs::ToStatus(path.string(), error, system_error);
  }
}

// A text of a JSON object; empty where it has none of this name.
std::string TextOf(const nlohmann::json& object, const char* name) {
  return object.is_object() && object.contains(name) && object[name].is_string() ? object[name].get<std::string>() : "";
}

// Reads what a backup needs from a job's columns `spec` and `progress`. Fields that cannot be read are left empty.
void ReadColumns(const std::string& spec_text, const std::string& progress_text, JobRow& row) {
  const nlohmann::json spec = nlohmann::json::parse(spec_text, nullptr, /*allow_exceptions=*/false);
  row.dataset = DatasetId(TextOf(spec, "dataset"));
  row.dataset_uid = TextOf(spec, "dataset_uid");
  const nlohmann::json progress = nlohmann::json::parse(progress_text, nullptr, /*allow_exceptions=*/false);
  constexpr char kStep[] = "checkpoint_step";
  row.had_checkpoint = progress.is_object() && progress.contains(kStep) && progress[kStep].is_number() &&
                       progress[kStep].get<int64_t>() > 0;
}

}  // namespace

absl::StatusOr<std::vector<JobRow>> ReadJobRows(const std::filesystem::path& database) {
  std::vector<JobRow> rows;
  absl::Status read = WithDatabase(database, SQLite::OPEN_READONLY, [&](SQLite::Database& open) {
    SQLite::Statement select(open, "SELECT id, state, spec, progress FROM jobs");
    while (select.executeStep()) {
      // A row whose state cannot be read is shown as failed, and is nobody's to run.
      const std::optional<jobs::JobState> state = jobs::kJobStateNames.Parse(select.getColumn(1).getString());
      JobRow row{.id = JobId(select.getColumn(0).getString()), .ended = !state || jobs::IsTerminal(*state)};
      ReadColumns(select.getColumn(2).getString(), select.getColumn(3).getString(), row);
      rows.push_back(std::move(row));
    }
    return absl::OkStatus();
  });
  if (!read.ok()) return read;
  return rows;
}

absl::Status CopyDatabase(const std::filesystem::path& from, const std::filesystem::path& to) {
  // Within one reading transaction: in WAL mode the daemon's writes neither wait nor come into the copy.
  absl::Status copied = WithDatabase(from, SQLite::OPEN_READONLY, [&](SQLite::Database& open) {
    SQLite::Statement copy(open, "VACUUM INTO ?");
    copy.bind(1, to.string());
    copy.exec();
    return absl::OkStatus();
  });
  if (!copied.ok()) return copied;
  return WithDatabase(to, SQLite::OPEN_READONLY, [&](SQLite::Database& open) {
    const std::string found = open.execAndGet("PRAGMA integrity_check(1)").getString();
    return found == "ok" ? absl::OkStatus() : absl::DataLossError(absl::StrCat(from.string(), " is damaged: ", found));
  });
}

absl::Status DropJobRows(const std::filesystem::path& database, const std::vector<JobId>& jobs) {
  if (jobs.empty()) return absl::OkStatus();
  return WithDatabase(database, SQLite::OPEN_READWRITE, [&](SQLite::Database& open) {
    open.exec("PRAGMA foreign_keys = ON");
    for (const JobId& id : jobs) {
      SQLite::Statement erase(open, "DELETE FROM jobs WHERE id = ?");
      erase.bind(1, id.value());
      erase.exec();
    }
    return absl::OkStatus();
  });
}

}  // namespace permafrost::backup
