#include "backup/database_copy.h"

#include <SQLiteCpp/SQLiteCpp.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

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

DatasetId DatasetOf(const std::string& spec) {
  const nlohmann::json json = nlohmann::json::parse(spec, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("dataset") || !json["dataset"].is_string()) return DatasetId();
  return DatasetId(json["dataset"].get<std::string>());
}

}  // namespace

absl::StatusOr<std::vector<JobRow>> ReadJobRows(const std::filesystem::path& database) {
  std::vector<JobRow> rows;
  absl::Status read = WithDatabase(database, SQLite::OPEN_READONLY, [&](SQLite::Database& open) {
    SQLite::Statement select(open, "SELECT id, state, spec FROM jobs");
    while (select.executeStep()) {
      // A row whose state cannot be read is shown as failed, and is nobody's to run.
      const std::optional<jobs::JobState> state = jobs::kJobStateNames.Parse(select.getColumn(1).getString());
      rows.push_back({.id = JobId(select.getColumn(0).getString()),
                      .ended = !state || jobs::IsTerminal(*state),
                      .dataset = DatasetOf(select.getColumn(2).getString())});
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
