#include "jobs/job_schema.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status.h"
#include "telemetry/log.h"

namespace permafrost::jobs {
namespace {

// 1: jobs and epochs. 2: graph caches and their commands. 3: metrics are not always MAEs, and not named so. 4: labels.
// 5: state changes, failures that programs can read, and requests that were answered. 6: requests that were begun.
constexpr int kSchemaVersion = 6;

// AUTOINCREMENT: a sequence is never given twice, so that page tokens and ages outlive deletions.
constexpr char kJobTables[] = R"sql(
  CREATE TABLE jobs (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    request_id TEXT UNIQUE,
    state TEXT NOT NULL,
    create_time INTEGER NOT NULL,
    start_time INTEGER,
    end_time INTEGER,
    spec TEXT NOT NULL,
    progress TEXT NOT NULL,
    result TEXT,
    error TEXT NOT NULL,
    resumes INTEGER NOT NULL
  );
  CREATE INDEX jobs_by_state ON jobs (state, sequence);
  CREATE TABLE epochs (
    job INTEGER NOT NULL REFERENCES jobs (sequence) ON DELETE CASCADE,
    epoch INTEGER NOT NULL,
    metrics TEXT NOT NULL,
    PRIMARY KEY (job, epoch)
  ) WITHOUT ROWID;
)sql";

constexpr char kGraphCacheTables[] = R"sql(
  CREATE TABLE graph_caches (
    job INTEGER PRIMARY KEY REFERENCES jobs (sequence) ON DELETE CASCADE,
    snapshot TEXT NOT NULL,
    entries TEXT NOT NULL
  );
  CREATE TABLE cache_commands (
    job INTEGER NOT NULL REFERENCES jobs (sequence) ON DELETE CASCADE,
    sequence INTEGER NOT NULL,
    command TEXT NOT NULL,
    PRIMARY KEY (job, sequence)
  ) WITHOUT ROWID;
)sql";

// By text, which leaves every number bit by bit as it is; SQLite's JSON functions would write them anew with fewer
// digits. No value holds a quoted key: all are numbers, "nan" or "inf".
constexpr char kRenameMetrics[] = R"sql(
  UPDATE epochs SET metrics = replace(metrics, '"valid_mae":', '"valid_metric":');
  UPDATE jobs SET result = replace(replace(replace(result, '"best_valid_mae":', '"best_valid_metric":'),
                                           '"best_test_mae":', '"best_test_metric":'),
                                   '"final_test_mae":', '"final_test_metric":');
)sql";

constexpr char kAddHistory[] = R"sql(
  ALTER TABLE jobs ADD COLUMN history TEXT NOT NULL DEFAULT '{}';
  ALTER TABLE jobs ADD COLUMN failure TEXT NOT NULL DEFAULT '{}';
  CREATE TABLE answered_requests (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    request_id TEXT NOT NULL UNIQUE,
    what TEXT NOT NULL
  );
)sql";

constexpr char kAddLabels[] = "ALTER TABLE jobs ADD COLUMN labels TEXT NOT NULL DEFAULT '{}'";

constexpr char kAddBegun[] = R"sql(
  ALTER TABLE answered_requests ADD COLUMN answered INTEGER NOT NULL DEFAULT 1;
  ALTER TABLE answered_requests ADD COLUMN subject TEXT NOT NULL DEFAULT '';
)sql";

constexpr int kPrimary = 0xff;  // of an extended code

bool IsCannotOpen(const SQLite::Exception& error) { return (error.getErrorCode() & kPrimary) == SQLITE_CANTOPEN; }

// True for an errno that may pass: nothing is written just now, or there is too little of something.
bool IsPassing(int error) {
  return error == EROFS || error == EACCES || error == EPERM || error == EMFILE || error == ENFILE || error == ENOMEM;
}

// SQLiteCpp has -1 where an error was made of a code alone, which may be an extended one.
int ExtendedCode(const SQLite::Exception& error) {
  return error.getExtendedErrorCode() >= 0 ? error.getExtendedErrorCode() : error.getErrorCode();
}

}  // namespace

bool IsOfFileBytes(const SQLite::Exception& error) {
  switch (ExtendedCode(error)) {
    case SQLITE_IOERR_READ:
    case SQLITE_IOERR_CORRUPTFS:  // a read that the disk failed
    case SQLITE_IOERR_WRITE:
    case SQLITE_IOERR_TRUNCATE:
    case SQLITE_IOERR_FSYNC:
      return true;
    default:
      return false;
  }
}

// sqlite3_system_errno says nothing of a commit.
int SystemErrorOf(sqlite3* database, const SQLite::Exception& met) {
  if (IsCannotOpen(met)) return sqlite3_system_errno(database);
  // A file keeps the errno of the last call on it that failed, and an error of anything else leaves it as it was.
  if (!IsOfFileBytes(met)) return 0;
  sqlite3_file* log = nullptr;
  int error = 0;
  sqlite3_file_control(database, "main", SQLITE_FCNTL_JOURNAL_POINTER, reinterpret_cast<void*>(&log));
  if (log != nullptr && log->pMethods != nullptr) log->pMethods->xFileControl(log, SQLITE_FCNTL_LAST_ERRNO, &error);
  if (error == 0) sqlite3_file_control(database, "main", SQLITE_FCNTL_LAST_ERRNO, &error);
  return error;
}

// Asks SQLite: if this process has the file open already, closing any descriptor of it would end the locks.
int WhyNotOpened(const std::string& file) {
  sqlite3* database = nullptr;
  const int opened = sqlite3_open_v2(file.c_str(), &database, SQLITE_OPEN_READONLY, nullptr);
  const int error = opened == SQLITE_CANTOPEN ? sqlite3_system_errno(database) : 0;
  sqlite3_close(database);
  return error;
}

absl::Status PrepareDatabase(SQLite::Database& database) {
  PF_RETURN_IF_ERROR(CheckDatabase(database));
  PF_RETURN_IF_ERROR(BackUpBeforeMigration(database, kSchemaVersion));
  database.exec("PRAGMA journal_mode = WAL");
  database.exec("PRAGMA synchronous = FULL");
  database.exec("PRAGMA fullfsync = ON");  // macOS: through the drive's cache; nothing elsewhere
  database.exec("PRAGMA foreign_keys = ON");
  // IMMEDIATE: if two processes find an empty file, one makes the schema and the other waits.
  SQLite::Transaction transaction(database, SQLite::TransactionBehavior::IMMEDIATE);
  const int version = database.execAndGet("PRAGMA user_version").getInt();
  if (version < 0 || version > kSchemaVersion) {
    return absl::FailedPreconditionError(absl::StrCat(database.getFilename(), ": schema version ", version,
                                                      " is not known; this build reads versions 1 to ",
                                                      kSchemaVersion));
  }
  if (version < 1) database.exec(kJobTables);
  if (version < 2) database.exec(kGraphCacheTables);
  if (version < 3) database.exec(kRenameMetrics);
  if (version < 4) database.exec(kAddLabels);
  if (version < 5) database.exec(kAddHistory);
  if (version < 6) database.exec(kAddBegun);
  if (version < kSchemaVersion) database.exec(absl::StrCat("PRAGMA user_version = ", kSchemaVersion));
  transaction.commit();
  return absl::OkStatus();
}

absl::Status ToStatus(const std::string& file, const SQLite::Exception& error, int system_error) {
  const int code = error.getErrorCode() & kPrimary;
  const bool of_system = system_error != 0 && (IsOfFileBytes(error) || IsCannotOpen(error));
  const std::string message = absl::StrCat(file, ": ", error.what(), of_system ? ": " : "",
                                           of_system ? std::generic_category().message(system_error) : "");
  if (of_system && IsPassing(system_error)) return absl::UnavailableError(message);
  switch (code) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::UnavailableError(absl::StrCat(
          message, " by another process that writes to it (such as a sqlite3 shell): try again once it has ended"));
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(message);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(message);
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM:
      return absl::FailedPreconditionError(message);
    default:
      return absl::InternalError(message);
  }
}

namespace {

namespace fs = std::filesystem;

// Up to here the whole check takes well below a second.
constexpr uintmax_t kSmallDatabaseBytes = uintmax_t{64} << 20;

// The copies that migrations made: "permafrost.db.v3-backup".
std::string CopiesBeside(const fs::path& file) {
  std::string found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(file.parent_path(), error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(file.filename().string() + ".v")) continue;
    absl::StrAppend(&found, found.empty() ? "" : ", ", name);
  }
  return found;
}

absl::Status SyncFile(const fs::path& path) {
  const Descriptor file = OpenRetrying(path, O_RDONLY);
  if (!file.valid()) return SystemError(errno, path, "open");
  if (fsync(file.get()) != 0) return SystemError(errno, path, "sync");
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckDatabase(SQLite::Database& database) {
  const fs::path file = database.getFilename();
  std::error_code error;
  const uintmax_t bytes = fs::file_size(file, error);
  const bool small = !error && bytes <= kSmallDatabaseBytes;
  std::string found;
  try {
    found = database.execAndGet(small ? "PRAGMA integrity_check(1)" : "PRAGMA quick_check(1)").getString();
  } catch (const SQLite::Exception& damage) {
    if (damage.getErrorCode() != SQLITE_CORRUPT && damage.getErrorCode() != SQLITE_NOTADB) throw;
    found = damage.what();
  }
  if (found == "ok") return absl::OkStatus();
  const std::string copies = CopiesBeside(file);
  return absl::DataLossError(absl::StrCat(
      file.string(), " is damaged: ", found,
      "; nothing was changed. Move it away and put back that of a backup (permafrost server backup), jobs/ with it",
      copies.empty() ? "" : "; older copies beside it: ", copies));
}

absl::Status BackUpBeforeMigration(SQLite::Database& database, int newest) {
  const int version = database.execAndGet("PRAGMA user_version").getInt();
  if (version < 1 || version >= newest) return absl::OkStatus();
  const fs::path file = database.getFilename();
  const std::string base = absl::StrCat(file.string(), ".v", version, "-backup");
  std::error_code error;
  fs::path copy = base;
  for (int number = 2; fs::exists(fs::symlink_status(copy, error)); ++number) copy = absl::StrCat(base, "-", number);
  const fs::path making = absl::StrCat(file.string(), ".tmp-backup");
  // A process that died may have left it.
  PF_RETURN_IF_ERROR(RemoveAll(making));
  SQLite::Statement vacuum(database, "VACUUM INTO ?");
  vacuum.bind(1, making.string());
  vacuum.exec();
  PF_RETURN_IF_ERROR(SyncFile(making));
  PF_RETURN_IF_ERROR(Rename(making, copy));
  telemetry::Log(telemetry::Severity::kInfo,
                 absl::StrCat(file.string(), " is of schema version ", version, " and is brought to ", newest,
                              "; as it was it is kept in ", copy.filename().string()));
  return absl::OkStatus();
}

}  // namespace permafrost::jobs
