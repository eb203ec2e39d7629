#include "jobs/job_database.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/file.h"
#include "base/status.h"
#include "jobs/job_row.h"
#include "telemetry/log.h"

namespace permafrost::jobs {
namespace {

// The present version of the schema. The versions added: 1: jobs and epochs. 2: graph caches and their commands. 3:
// metrics other than MAE, with new names. 4: labels. 5: state changes, failures that programs can read, and answered
// requests. 6: begun requests.
constexpr int kSchemaVersion = 6;

// AUTOINCREMENT never reuses a sequence, so page tokens and the order of ages stay valid after deletions.
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

// Renames the keys as text, so that every number keeps its digits. SQLite's JSON functions would rewrite numbers with
// fewer digits. No value can contain a quoted key: all values are numbers, "nan" or "inf".
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

constexpr int kPrimary = 0xff;  // mask of the primary code in an extended code

bool IsCannotOpen(const SQLite::Exception& error) { return (error.getErrorCode() & kPrimary) == SQLITE_CANTOPEN; }

// Returns true for an errno of a passing condition: the file cannot be written just now, or a resource is short.
bool IsPassing(int error) {
  return error == EROFS || error == EACCES || error == EPERM || error == EMFILE || error == ENFILE || error == ENOMEM;
}

// If the exception was made from a code alone, SQLiteCpp has -1 as the extended code. The code itself may then be
// extended.
int ExtendedCode(const SQLite::Exception& error) {
  return error.getExtendedErrorCode() >= 0 ? error.getExtendedErrorCode() : error.getErrorCode();
}

// RequestKey::what of a CreateJob begins with this text. The hash of CreateRequest::asked follows.
constexpr absl::string_view kCreation = "create";

absl::Status Reused(const std::string& request_id) {
  return WithReason(absl::AlreadyExistsError(
                        absl::StrCat("request_id ", request_id, " was used for another call; use a new one for each")),
                    "REQUEST_ID_REUSED");
}

// Returns the hash `asked` of a CreateJob from its RequestKey::what. Returns nullopt if `what` belongs to another
// call.
std::optional<std::string> AskedIn(absl::string_view what) {
  if (!absl::ConsumePrefix(&what, kCreation) || (!what.empty() && !absl::ConsumePrefix(&what, " "))) {
    return std::nullopt;
  }
  return std::string(what);
}

// Writes a record. Returns the number of rows written.
int Write(SQLite::Statement& statement, const RequestKey& request, const RequestRecord& record) {
  Use write(statement);
  write->bind(1, request.id);
  write->bind(2, request.what);
  write->bind(3, record.answered ? 1 : 0);
  write->bind(4, record.subject);
  return write->exec();
}

}  // namespace

bool IsOfFileBytes(const SQLite::Exception& error) {
  switch (ExtendedCode(error)) {
    case SQLITE_IOERR_READ:
    case SQLITE_IOERR_CORRUPTFS:  // the disk failed to read
    case SQLITE_IOERR_WRITE:
    case SQLITE_IOERR_TRUNCATE:
    case SQLITE_IOERR_FSYNC:
      return true;
    default:
      return false;
  }
}

// sqlite3_system_errno does not know the errno of a failed commit, so this asks the files.
int SystemErrorOf(sqlite3* database, const SQLite::Exception& met) {
  if (IsCannotOpen(met)) return sqlite3_system_errno(database);
  // SQLite keeps the errno of each file's last failed call. If `met` is not the error of such a call, the errno is
  // older and says nothing about `met`.
  if (!IsOfFileBytes(met)) return 0;
  sqlite3_file* log = nullptr;
  int error = 0;
  sqlite3_file_control(database, "main", SQLITE_FCNTL_JOURNAL_POINTER, reinterpret_cast<void*>(&log));
  if (log != nullptr && log->pMethods != nullptr) log->pMethods->xFileControl(log, SQLITE_FCNTL_LAST_ERRNO, &error);
  if (error == 0) sqlite3_file_control(database, "main", SQLITE_FCNTL_LAST_ERRNO, &error);
  return error;
}

// Asks SQLite instead of opening the file. If this process already has the file open, closing another descriptor of
// the file would release the locks.
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
  database.exec("PRAGMA fullfsync = ON");  // macOS: also empties the drive's cache; no effect elsewhere
  database.exec("PRAGMA foreign_keys = ON");
  // If two processes find an empty file, IMMEDIATE makes one of them wait while the other makes the schema.
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

// Up to this size, integrity_check takes well below a second.
constexpr uintmax_t kSmallDatabaseBytes = uintmax_t{64} << 20;

// Returns the names of copies that migrations made, such as "permafrost.db.v3-backup".
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
  // An earlier process that died may have left this file.
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

absl::Status JobNotFound(const JobId& id) {
  return WithReason(absl::NotFoundError(absl::StrCat("job ", id.value(), " does not exist")), "JOB_NOT_FOUND",
                    {{"job", id.value()}});
}

StoreConnection::StoreConnection(SQLite::Database prepared)
    : database(std::move(prepared)),
      insert(database, kInsertJob),
      update(database, absl::StrCat("UPDATE jobs SET ", kLiveColumns, " WHERE id = ?")),
      describe(database, "UPDATE jobs SET spec = ?, labels = ? WHERE id = ?"),
      put_epoch(database, "INSERT OR REPLACE INTO epochs SELECT sequence, ?, ? FROM jobs WHERE id = ?"),
      by_id(database, absl::StrCat(kSelectJob, "WHERE id = ?")),
      by_request(database, absl::StrCat(kSelectJob, "WHERE request_id = ?")),
      request_of(database, "SELECT request_id FROM jobs WHERE id = ?"),
      epochs(database, "SELECT metrics FROM epochs WHERE job = ? AND epoch > ? ORDER BY epoch"),
      list(database, absl::StrCat(kSelectJob,
                                  "WHERE sequence < ? AND (state IN (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) OR ?) "
                                  "ORDER BY sequence DESC LIMIT ?")),
      erase(database, "DELETE FROM jobs WHERE id = ?"),
      // AUTOINCREMENT keeps the last sequence in the table sqlite_sequence, and deletions do not change it.
      last_sequence(database, "SELECT seq FROM sqlite_sequence WHERE name = 'jobs'"),
      put_cache(database,
                "INSERT INTO graph_caches SELECT sequence, ?, '[]' FROM jobs WHERE id = ? "
                "ON CONFLICT (job) DO UPDATE SET snapshot = excluded.snapshot"),
      put_entries(database, "UPDATE graph_caches SET entries = ? WHERE job = (SELECT sequence FROM jobs WHERE id = ?)"),
      cache(database, "SELECT snapshot FROM jobs LEFT JOIN graph_caches ON job = sequence WHERE id = ?"),
      entries(database, "SELECT entries FROM jobs LEFT JOIN graph_caches ON job = sequence WHERE id = ?"),
      put_command(database, "INSERT OR REPLACE INTO cache_commands SELECT sequence, ?, ? FROM jobs WHERE id = ?"),
      commands(database,
               "SELECT command FROM cache_commands WHERE job = (SELECT sequence FROM jobs WHERE id = ?) "
               "ORDER BY sequence"),
      requests(database) {}

bool StoreConnection::Has(SQLite::Statement& by, const std::string& key) {
  Use select(by);
  select->bind(1, key);
  return select->executeStep();
}

std::string StoreConnection::RequestOf(const JobId& id) {
  Use select(request_of);
  select->bind(1, id.value());
  return select->executeStep() && !select->getColumn(0).isNull() ? select->getColumn(0).getString() : "";
}

std::optional<Job> StoreConnection::Find(SQLite::Statement& by, const std::string& key, int64_t after_epoch) {
  Use select(by);
  select->bind(1, key);
  if (!select->executeStep()) return std::nullopt;
  Job job = ReadRow(*select);
  Use select_epochs(epochs);
  select_epochs->bind(1, job.sequence);
  select_epochs->bind(2, after_epoch);
  while (job.epochs.size() < kMostEpochs && select_epochs->executeStep()) {
    const absl::StatusOr<train::EpochMetrics> metrics = EpochFromJson(select_epochs->getColumn(0).getString());
    if (metrics.ok()) {
      job.epochs.push_back(*metrics);
    } else {
      // Only logs an unreadable epoch, because it is one line of the job's history, and nothing depends on it.
      telemetry::Log(
          telemetry::Severity::kWarning,
          absl::StrCat("job ", job.id.value(), ": an epoch on record cannot be read: ", metrics.status().message()));
    }
  }
  return job;
}

absl::Status StoreConnection::PutCache(const JobId& id, const graphcache::Snapshot& snapshot) {
  Use put(put_cache);
  put->bind(1, graphcache::ToJson(snapshot));
  put->bind(2, id.value());
  return put->exec() == 1 ? absl::OkStatus() : JobNotFound(id);
}

RequestRows::RequestRows(SQLite::Database& database)
    : database_(database),
      update_(database, "UPDATE answered_requests SET what = ?2, answered = ?3, subject = ?4 WHERE request_id = ?1"),
      // If the newest row was dropped, its number is used again, so that the dropped row does not push out another
      // one.
      insert_(database,
              "INSERT INTO answered_requests (sequence, request_id, what, answered, subject) VALUES "
              "((SELECT COALESCE(MAX(sequence), 0) + 1 FROM answered_requests), ?1, ?2, ?3, ?4)"),
      trim_(database, "DELETE FROM answered_requests WHERE sequence <= ?"),
      drop_(database, "DELETE FROM answered_requests WHERE request_id = ?"),
      select_(database, "SELECT what, answered, subject FROM answered_requests WHERE request_id = ?") {}

void RequestRows::Put(const RequestKey& request, const RequestRecord& record) {
  if (request.id.empty()) return;
  if (Write(update_, request, record) > 0) return;
  Write(insert_, request, record);
  Use trim(trim_);
  trim->bind(1, static_cast<int64_t>(database_.getLastInsertRowid()) - JobStore::kMaxRequests);
  trim->exec();
}

void RequestRows::Drop(const std::string& request_id) {
  Use drop(drop_);
  drop->bind(1, request_id);
  drop->exec();
}

std::optional<RequestRows::Row> RequestRows::FindRow(const std::string& request_id) {
  if (request_id.empty()) return std::nullopt;
  Use select(select_);
  select->bind(1, request_id);
  if (!select->executeStep()) return std::nullopt;
  return Row{.what = select->getColumn(0).getString(),
             .record = {.answered = select->getColumn(1).getInt() != 0, .subject = select->getColumn(2).getString()}};
}

absl::StatusOr<std::optional<RequestRecord>> RequestRows::Find(const RequestKey& request) {
  const std::optional<Row> row = FindRow(request.id);
  if (!row) return std::nullopt;
  if (row->what != request.what) return Reused(request.id);
  return row->record;
}

absl::StatusOr<std::optional<Creation>> RequestRows::FindCreation(const std::string& request_id) {
  const std::optional<Row> row = FindRow(request_id);
  if (!row) return std::nullopt;
  const std::optional<std::string> asked = AskedIn(row->what);
  if (!asked) return Reused(request_id);
  return Creation{.job = JobId(row->record.subject), .asked = *asked};
}

void RequestRows::PutCreation(const std::string& request_id, const std::string& asked, const JobId& job) {
  Put({.id = request_id, .what = asked.empty() ? std::string(kCreation) : absl::StrCat(kCreation, " ", asked)},
      {.answered = true, .subject = job.value()});
}

void RequestRows::RenewCreation(const std::string& request_id, const JobId& job) {
  const std::optional<Row> row = FindRow(request_id);
  Drop(request_id);
  PutCreation(request_id, row ? AskedIn(row->what).value_or("") : "", job);
}

}  // namespace permafrost::jobs
