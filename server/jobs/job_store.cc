#include "jobs/job_store.h"

#include <SQLiteCpp/SQLiteCpp.h>

#include <algorithm>
#include <limits>
#include <type_traits>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "jobs/job_json.h"
#include "jobs/job_schema.h"
#include "telemetry/log.h"

namespace permafrost::jobs {
namespace {

// How long another process that looks into the file (sqlite3, a backup) may hold it before a call fails.
constexpr int kBusyTimeoutMilliseconds = 5000;

// In ReadRow's order. Times are Unix nanoseconds.
constexpr char kSelectJob[] =
    "SELECT sequence, id, request_id, state, create_time, start_time, end_time, spec, progress, result, error, "
    "resumes, "
    "labels FROM jobs ";

void BindTime(SQLite::Statement& statement, int index, absl::Time time) {
  if (time == absl::InfinitePast()) {
    statement.bind(index);
  } else {
    statement.bind(index, static_cast<int64_t>(absl::ToUnixNanos(time)));
  }
}

absl::Time ColumnTime(const SQLite::Column& column) {
  return column.isNull() ? absl::InfinitePast() : absl::FromUnixNanos(column.getInt64());
}

std::string StateName(JobState state) { return std::string(kJobStateNames.Name(state)); }

// A prepared statement for one use: reset when done, or it would keep its read lock on the file.
class Use {
 public:
  explicit Use(SQLite::Statement& statement) : statement_(statement) {}
  Use(const Use&) = delete;
  ~Use() { statement_.tryReset(); }
  SQLite::Statement* operator->() { return &statement_; }
  SQLite::Statement& operator*() { return statement_; }

 private:
  SQLite::Statement& statement_;
};

absl::Status NotFound(const JobId& id) {
  return WithReason(absl::NotFoundError(absl::StrCat("job ", id.value(), " does not exist")), "JOB_NOT_FOUND",
                    {{"job", id.value()}});
}

// The connection and its statements, each for one call at a time.
struct Connection {
  // Throws SQLite::Exception. `prepared`: see PrepareDatabase.
  explicit Connection(SQLite::Database prepared)
      : database(std::move(prepared)),
        insert(database,
               "INSERT INTO jobs (id, request_id, state, create_time, start_time, end_time, spec, progress, result, "
               "error, resumes, labels) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"),
        update(database,
               "UPDATE jobs SET state = ?, start_time = ?, end_time = ?, progress = ?, result = ?, error = ?, "
               "resumes = ? WHERE id = ?"),
        describe(database, "UPDATE jobs SET spec = ?, labels = ? WHERE id = ?"),
        put_epoch(database, "INSERT OR REPLACE INTO epochs SELECT sequence, ?, ? FROM jobs WHERE id = ?"),
        by_id(database, absl::StrCat(kSelectJob, "WHERE id = ?")),
        by_request(database, absl::StrCat(kSelectJob, "WHERE request_id = ?")),
        epochs(database, "SELECT metrics FROM epochs WHERE job = ? AND epoch > ? ORDER BY epoch"),
        list(database, absl::StrCat(kSelectJob,
                                    "WHERE sequence < ? AND (state IN (?, ?, ?, ?, ?, ?, ?) OR ?) "
                                    "ORDER BY sequence DESC LIMIT ?")),
        erase(database, "DELETE FROM jobs WHERE id = ?"),
        put_cache(database,
                  "INSERT INTO graph_caches SELECT sequence, ?, '[]' FROM jobs WHERE id = ? "
                  "ON CONFLICT (job) DO UPDATE SET snapshot = excluded.snapshot"),
        put_entries(database,
                    "UPDATE graph_caches SET entries = ? WHERE job = (SELECT sequence FROM jobs WHERE id = ?)"),
        cache(database, "SELECT snapshot FROM jobs LEFT JOIN graph_caches ON job = sequence WHERE id = ?"),
        entries(database, "SELECT entries FROM jobs LEFT JOIN graph_caches ON job = sequence WHERE id = ?"),
        put_command(database, "INSERT OR REPLACE INTO cache_commands SELECT sequence, ?, ? FROM jobs WHERE id = ?"),
        commands(database,
                 "SELECT command FROM cache_commands WHERE job = (SELECT sequence FROM jobs WHERE id = ?) "
                 "ORDER BY sequence") {}

  SQLite::Database database;
  SQLite::Statement insert, update, describe, put_epoch, by_id, by_request, epochs, list, erase;
  SQLite::Statement put_cache, put_entries, cache, entries, put_command, commands;
};

void BindResult(SQLite::Statement& statement, int index, const Job& job) {
  if (job.result) {
    statement.bind(index, ToJson(*job.result));
  } else {
    statement.bind(index);
  }
}

bool Exists(SQLite::Statement& by, const std::string& key) {
  Use select(by);
  select->bind(1, key);
  return select->executeStep();
}

absl::Status ReadState(SQLite::Statement& row, Job& job) {
  const std::string state = row.getColumn(3).getString();
  const std::optional<JobState> parsed = kJobStateNames.Parse(state);
  if (!parsed) return absl::DataLossError(absl::StrCat("state \"", state, "\" is not known"));
  job.state = *parsed;
  PF_ASSIGN_OR_RETURN(job.spec, SpecFromJson(row.getColumn(7).getString()));
  PF_ASSIGN_OR_RETURN(const ProgressColumn progress, ProgressFromJson(row.getColumn(8).getString()));
  job.progress = progress.progress;
  job.deaths = progress.deaths;
  job.trouble = progress.trouble;
  job.pausing = progress.pausing;
  PF_ASSIGN_OR_RETURN(job.labels, LabelsFromJson(row.getColumn(12).getString()));
  if (!row.getColumn(9).isNull()) {
    PF_ASSIGN_OR_RETURN(job.result, ResultFromJson(row.getColumn(9).getString()));
  }
  job.error = row.getColumn(10).getString();
  job.resumes = row.getColumn(11).getInt();
  return absl::OkStatus();
}

void MarkUnreadable(const absl::Status& why, Job& job) {
  job.unreadable = true;
  job.state = JobState::kFailed;
  job.error = absl::StrCat("the record of job ", job.id.value(),
                           " in the database cannot be read, its files are untouched: ", why.message());
}

// Without epochs.
Job ReadRow(SQLite::Statement& row) {
  Job job;
  job.sequence = row.getColumn(0).getInt64();
  job.id = JobId(row.getColumn(1).getString());
  if (!row.getColumn(2).isNull()) job.request_id = row.getColumn(2).getString();
  job.create_time = ColumnTime(row.getColumn(4));
  job.start_time = ColumnTime(row.getColumn(5));
  job.end_time = ColumnTime(row.getColumn(6));
  if (const absl::Status read = ReadState(row, job); !read.ok()) MarkUnreadable(read, job);
  return job;
}

// With epochs.
std::optional<Job> Find(SQLite::Statement& by, const std::string& key, SQLite::Statement& epochs_of,
                        int64_t after_epoch) {
  Use select(by);
  select->bind(1, key);
  if (!select->executeStep()) return std::nullopt;
  Job job = ReadRow(*select);
  Use epochs(epochs_of);
  epochs->bind(1, job.sequence);
  epochs->bind(2, after_epoch);
  while (epochs->executeStep()) {
    const absl::StatusOr<train::EpochMetrics> metrics = EpochFromJson(epochs->getColumn(0).getString());
    if (metrics.ok()) {
      job.epochs.push_back(*metrics);
    } else {
      // A line of its history, which nothing depends on.
      telemetry::Log(
          telemetry::Severity::kWarning,
          absl::StrCat("job ", job.id.value(), ": an epoch on record cannot be read: ", metrics.status().message()));
    }
  }
  return job;
}

absl::Status PutCache(Connection& c, const JobId& id, const graphcache::Snapshot& snapshot) {
  Use put(c.put_cache);
  put->bind(1, graphcache::ToJson(snapshot));
  put->bind(2, id.value());
  return put->exec() == 1 ? absl::OkStatus() : NotFound(id);
}

class SqliteJobStore : public JobStore {
 public:
  // Throws SQLite::Exception.
  SqliteJobStore(SQLite::Database prepared, std::function<void()> on_error)
      : on_error_(std::move(on_error)), connection_(std::move(prepared)) {}

  absl::Status Insert(Job& job) override {
    return WithConnection([&](Connection& c) -> absl::Status {
      SQLite::Transaction transaction(c.database, SQLite::TransactionBehavior::IMMEDIATE);
      if (Exists(c.by_id, job.id.value())) {
        return WithReason(absl::AlreadyExistsError(absl::StrCat("job ", job.id.value(), " already exists")),
                          "JOB_ALREADY_EXISTS", {{"job", job.id.value()}});
      }
      if (!job.request_id.empty() && Exists(c.by_request, job.request_id)) {
        return WithReason(absl::AlreadyExistsError(absl::StrCat("request_id ", job.request_id, " was used before")),
                          "REQUEST_ID_REUSED");
      }
      Use insert(c.insert);
      insert->bind(1, job.id.value());
      if (job.request_id.empty()) {
        insert->bind(2);  // NULL: the only value that UNIQUE lets repeat
      } else {
        insert->bind(2, job.request_id);
      }
      insert->bind(3, StateName(job.state));
      BindTime(*insert, 4, job.create_time);
      BindTime(*insert, 5, job.start_time);
      BindTime(*insert, 6, job.end_time);
      insert->bind(7, ToJson(job.spec));
      insert->bind(8, ToJson(ProgressColumn{job.progress, job.deaths, job.trouble, job.pausing}));
      BindResult(*insert, 9, job);
      insert->bind(10, job.error);
      insert->bind(11, job.resumes);
      insert->bind(12, ToJson(job.labels));
      insert->exec();
      const int64_t sequence = c.database.getLastInsertRowid();
      transaction.commit();
      job.sequence = sequence;
      return absl::OkStatus();
    });
  }

  absl::Status Update(const Job& job) override {
    return WithConnection([&](Connection& c) -> absl::Status {
      Use update(c.update);
      update->bind(1, StateName(job.state));
      BindTime(*update, 2, job.start_time);
      BindTime(*update, 3, job.end_time);
      update->bind(4, ToJson(ProgressColumn{job.progress, job.deaths, job.trouble, job.pausing}));
      BindResult(*update, 5, job);
      update->bind(6, job.error);
      update->bind(7, job.resumes);
      update->bind(8, job.id.value());
      return update->exec() == 1 ? absl::OkStatus() : NotFound(job.id);
    });
  }

  absl::Status Describe(const Job& job) override {
    return WithConnection([&](Connection& c) -> absl::Status {
      Use describe(c.describe);
      describe->bind(1, ToJson(job.spec));
      describe->bind(2, ToJson(job.labels));
      describe->bind(3, job.id.value());
      return describe->exec() == 1 ? absl::OkStatus() : NotFound(job.id);
    });
  }

  absl::Status PutEpochs(const JobId& id, const std::deque<train::EpochMetrics>& epochs) override {
    return WithConnection([&](Connection& c) -> absl::Status {
      SQLite::Transaction transaction(c.database, SQLite::TransactionBehavior::IMMEDIATE);
      for (const train::EpochMetrics& metrics : epochs) {
        Use put(c.put_epoch);
        put->bind(1, metrics.epoch);
        put->bind(2, ToJson(metrics));
        put->bind(3, id.value());
        if (put->exec() != 1) return NotFound(id);
      }
      transaction.commit();
      return absl::OkStatus();
    });
  }

  absl::StatusOr<Job> Get(const JobId& id, int64_t after_epoch) const override {
    return WithConnection([&](Connection& c) -> absl::StatusOr<Job> {
      std::optional<Job> job = Find(c.by_id, id.value(), c.epochs, after_epoch);
      if (!job) return NotFound(id);
      return *std::move(job);
    });
  }

  absl::StatusOr<std::optional<Job>> FindByRequestId(const std::string& request_id) const override {
    return WithConnection([&](Connection& c) -> absl::StatusOr<std::optional<Job>> {
      return Find(c.by_request, request_id, c.epochs, 0);
    });
  }

  absl::StatusOr<std::vector<Job>> List(const ListOptions& options) const override {
    if (options.page_size < 1 || options.page_size > 1000) {
      return absl::InvalidArgumentError(absl::StrCat("page_size: ", options.page_size, " is outside 1..1000"));
    }
    return WithConnection([&](Connection& c) -> absl::StatusOr<std::vector<Job>> {
      Use list(c.list);
      int index = 1;
      list->bind(index++, options.before_sequence.value_or(std::numeric_limits<int64_t>::max()));
      // A place for each state; NULL equals none.
      static_assert(kJobStateNames.rows.size() == 7);
      for (const auto& [state, name] : kJobStateNames.rows) {
        if (options.states.empty() || std::ranges::find(options.states, state) != options.states.end()) {
          list->bind(index++, std::string(name));
        } else {
          list->bind(index++);
        }
      }
      // States that are not known, too.
      list->bind(index++, options.states.empty() ? 1 : 0);
      list->bind(index, options.page_size);
      std::vector<Job> jobs;
      while (list->executeStep()) jobs.push_back(ReadRow(*list));
      return jobs;
    });
  }

  absl::Status Delete(const JobId& id) override {
    return WithConnection([&](Connection& c) -> absl::Status {
      Use erase(c.erase);
      erase->bind(1, id.value());
      return erase->exec() == 1 ? absl::OkStatus() : NotFound(id);
    });
  }

  absl::Status PutGraphCache(const JobId& id, const graphcache::Snapshot& snapshot,
                             const std::vector<graphcache::EntryInfo>* entries) override {
    return WithConnection([&](Connection& c) -> absl::Status {
      SQLite::Transaction transaction(c.database, SQLite::TransactionBehavior::IMMEDIATE);
      PF_RETURN_IF_ERROR(PutCache(c, id, snapshot));
      if (entries != nullptr) {
        Use put(c.put_entries);
        put->bind(1, graphcache::ToJson(*entries));
        put->bind(2, id.value());
        put->exec();
      }
      transaction.commit();
      return absl::OkStatus();
    });
  }

  absl::StatusOr<std::optional<graphcache::Snapshot>> GetGraphCache(const JobId& id) const override {
    return WithConnection([&](Connection& c) -> absl::StatusOr<std::optional<graphcache::Snapshot>> {
      Use select(c.cache);
      select->bind(1, id.value());
      if (!select->executeStep()) return NotFound(id);
      if (select->getColumn(0).isNull()) return std::nullopt;
      auto snapshot = graphcache::SnapshotFromJson(select->getColumn(0).getString());
      if (!snapshot.ok()) return Annotate(snapshot.status(), absl::StrCat("job ", id.value()));
      return std::optional<graphcache::Snapshot>(*std::move(snapshot));
    });
  }

  absl::StatusOr<std::vector<graphcache::EntryInfo>> GetGraphCacheEntries(const JobId& id) const override {
    return WithConnection([&](Connection& c) -> absl::StatusOr<std::vector<graphcache::EntryInfo>> {
      Use select(c.entries);
      select->bind(1, id.value());
      if (!select->executeStep()) return NotFound(id);
      if (select->getColumn(0).isNull()) return std::vector<graphcache::EntryInfo>();
      auto entries = graphcache::EntriesFromJson(select->getColumn(0).getString());
      if (!entries.ok()) return Annotate(entries.status(), absl::StrCat("job ", id.value()));
      return entries;
    });
  }

  absl::Status PutCacheCommands(const JobId& id, const std::vector<graphcache::Command>& commands,
                                const graphcache::Snapshot* snapshot) override {
    return WithConnection([&](Connection& c) -> absl::Status {
      SQLite::Transaction transaction(c.database, SQLite::TransactionBehavior::IMMEDIATE);
      for (const graphcache::Command& command : commands) {
        Use put(c.put_command);
        put->bind(1, command.sequence);
        put->bind(2, graphcache::ToJson(command));
        put->bind(3, id.value());
        if (put->exec() != 1) return NotFound(id);
      }
      if (snapshot != nullptr) PF_RETURN_IF_ERROR(PutCache(c, id, *snapshot));
      transaction.commit();
      return absl::OkStatus();
    });
  }

  absl::StatusOr<std::vector<graphcache::Command>> GetCacheCommands(const JobId& id) const override {
    return WithConnection([&](Connection& c) -> absl::StatusOr<std::vector<graphcache::Command>> {
      Use select(c.commands);
      select->bind(1, id.value());
      std::vector<graphcache::Command> commands;
      while (select->executeStep()) {
        auto command = graphcache::CommandFromJson(select->getColumn(0).getString());
        if (!command.ok()) return Annotate(command.status(), absl::StrCat("job ", id.value()));
        commands.push_back(*std::move(command));
      }
      return commands;
    });
  }

 private:
  // The one way to the connection: takes the lock and turns SQLite's exceptions into Status.
  template <class F>
  std::invoke_result_t<F, Connection&> WithConnection(F f) const {
    absl::MutexLock lock(&mu_);
    try {
      return f(connection_);
    } catch (const SQLite::Exception& error) {
      on_error_();
      return ToStatus(connection_.database.getFilename(), error);
    }
  }

  const std::function<void()> on_error_;
  mutable absl::Mutex mu_;
  mutable Connection connection_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<JobStore>> JobStore::Open(const std::filesystem::path& path,
                                                         std::function<void()> on_error) {
  try {
    SQLite::Database database(path.string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE, kBusyTimeoutMilliseconds);
    PF_RETURN_IF_ERROR(PrepareDatabase(database));
    return std::make_unique<SqliteJobStore>(std::move(database), std::move(on_error));
  } catch (const SQLite::Exception& error) {
    return ToStatus(path.string(), error);
  }
}

}  // namespace permafrost::jobs
