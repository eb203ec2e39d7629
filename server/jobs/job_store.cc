#include "jobs/job_store.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <sqlite3.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/monotonic.h"
#include "jobs/job_database.h"
#include "jobs/job_row.h"

namespace permafrost::jobs {
namespace {

// The longest wait of a call, or of opening the file, for another process that writes to the file (such as sqlite3).
constexpr absl::Duration kLongestLock = absl::Seconds(5);
// The interval of checking whether the lock is still held.
constexpr absl::Duration kLookAtLock = absl::Milliseconds(10);

absl::Status GivenUpError() {
  return absl::CancelledError("the client gave the call up while it waited for the database: nothing was done");
}

bool IsLocked(const SQLite::Exception& error) { return (error.getErrorCode() & 0xff) == SQLITE_BUSY; }

class SqliteJobStore : public JobStore {
 public:
  // Throws SQLite::Exception.
  SqliteJobStore(SQLite::Database prepared, std::function<void()> on_error)
      : on_error_(std::move(on_error)), connection_(std::move(prepared)) {}

  bool waits_for_lock() const override { return lock_waits_.load(std::memory_order_relaxed) > 0; }

  absl::Status Insert(Job& job, const std::string& asked) override {
    return WithConnection([&](StoreConnection& c) -> absl::Status {
      SQLite::Transaction transaction(c.database, SQLite::TransactionBehavior::IMMEDIATE);
      if (StoreConnection::Has(c.by_id, job.id.value())) {
        return WithReason(absl::AlreadyExistsError(absl::StrCat("job ", job.id.value(), " already exists")),
                          "JOB_ALREADY_EXISTS", {{"job", job.id.value()}});
      }
      if (!job.request_id.empty() && StoreConnection::Has(c.by_request, job.request_id)) {
        return WithReason(absl::AlreadyExistsError(absl::StrCat("request_id ", job.request_id, " was used before")),
                          "REQUEST_ID_REUSED");
      }
      Use insert(c.insert);
      BindInsert(*insert, job);
      insert->exec();
      const int64_t sequence = c.database.getLastInsertRowid();
      c.requests.PutCreation(job.request_id, asked, job.id);
      transaction.commit();
      job.sequence = sequence;
      return absl::OkStatus();
    });
  }

  absl::Status Update(const Job& job, const RequestKey& request) override {
    return WithConnection([&](StoreConnection& c) -> absl::Status {
      SQLite::Transaction transaction(c.database, SQLite::TransactionBehavior::IMMEDIATE);
      Use update(c.update);
      const int next = BindLiveColumns(*update, 1, job);
      update->bind(next, job.id.value());
      if (update->exec() != 1) return JobNotFound(job.id);
      c.requests.Put(request, {});
      transaction.commit();
      return absl::OkStatus();
    });
  }

  absl::Status Describe(const Job& job, const RequestKey& request) override {
    return WithConnection([&](StoreConnection& c) -> absl::Status {
      SQLite::Transaction transaction(c.database, SQLite::TransactionBehavior::IMMEDIATE);
      Use describe(c.describe);
      describe->bind(1, ToJson(SpecColumn{.spec = job.spec, .dataset_uid = job.dataset_uid, .notes = job.notes}));
      describe->bind(2, ToJson(job.labels));
      describe->bind(3, job.id.value());
      if (describe->exec() != 1) return JobNotFound(job.id);
      c.requests.Put(request, {});
      transaction.commit();
      return absl::OkStatus();
    });
  }

  absl::Status PutEpochs(const JobId& id, const std::deque<train::EpochMetrics>& epochs) override {
    return WithConnection([&](StoreConnection& c) -> absl::Status {
      SQLite::Transaction transaction(c.database, SQLite::TransactionBehavior::IMMEDIATE);
      for (const train::EpochMetrics& metrics : epochs) {
        Use put(c.put_epoch);
        put->bind(1, metrics.epoch);
        put->bind(2, ToJson(metrics));
        put->bind(3, id.value());
        if (put->exec() != 1) return JobNotFound(id);
      }
      transaction.commit();
      return absl::OkStatus();
    });
  }

  absl::StatusOr<Job> Get(const JobId& id, int64_t after_epoch) const override {
    return WithConnection([&](StoreConnection& c) -> absl::StatusOr<Job> {
      std::optional<Job> job = c.Find(c.by_id, id.value(), after_epoch);
      if (!job) return JobNotFound(id);
      return *std::move(job);
    });
  }

  absl::StatusOr<std::optional<Job>> FindByRequestId(const std::string& request_id) const override {
    return WithConnection([&](StoreConnection& c) -> absl::StatusOr<std::optional<Job>> {
      return c.Find(c.by_request, request_id, kNoEpochs);
    });
  }

  absl::StatusOr<std::vector<Job>> List(const ListOptions& options) const override {
    if (options.page_size < 1 || options.page_size > 1000) {
      return absl::InvalidArgumentError(absl::StrCat("page_size: ", options.page_size, " is outside 1..1000"));
    }
    return WithConnection([&](StoreConnection& c) -> absl::StatusOr<std::vector<Job>> {
      Use list(c.list);
      int index = 1;
      list->bind(index++, options.before_sequence.value_or(std::numeric_limits<int64_t>::max()));
      // The statement has one parameter for each state. A NULL matches no state.
      static_assert(kJobStateNames.rows.size() == 10);
      for (const auto& [state, name] : kJobStateNames.rows) {
        if (options.states.empty() || std::ranges::find(options.states, state) != options.states.end()) {
          list->bind(index++, std::string(name));
        } else {
          list->bind(index++);
        }
      }
      // If all states are wanted, rows with unknown states are listed too.
      list->bind(index++, options.states.empty() ? 1 : 0);
      list->bind(index, options.page_size);
      std::vector<Job> jobs;
      while (list->executeStep()) jobs.push_back(ReadRow(*list));
      return jobs;
    });
  }

  absl::Status Delete(const JobId& id, const RequestKey& request) override {
    return WithConnection([&](StoreConnection& c) -> absl::Status {
      SQLite::Transaction transaction(c.database, SQLite::TransactionBehavior::IMMEDIATE);
      // Makes the record of the request that created the job the newest one. After the deletion, only this record
      // tells that the job was made.
      if (const std::string created = c.RequestOf(id); !created.empty()) c.requests.RenewCreation(created, id);
      Use erase(c.erase);
      erase->bind(1, id.value());
      if (erase->exec() != 1) return JobNotFound(id);
      c.requests.Put(request, {});
      transaction.commit();
      return absl::OkStatus();
    });
  }

  absl::StatusOr<int64_t> LastSequence() const override {
    return WithConnection([](StoreConnection& c) -> absl::StatusOr<int64_t> {
      Use select(c.last_sequence);
      return select->executeStep() ? select->getColumn(0).getInt64() : 0;
    });
  }

  absl::StatusOr<std::optional<RequestRecord>> FindRequest(const RequestKey& request) const override {
    return WithConnection([&](StoreConnection& c) { return c.requests.Find(request); });
  }

  absl::StatusOr<std::optional<Creation>> FindCreation(const std::string& request_id) const override {
    return WithConnection([&](StoreConnection& c) { return c.requests.FindCreation(request_id); });
  }

  absl::Status PutRequest(const RequestKey& request, const RequestRecord& record) override {
    return WithConnection([&](StoreConnection& c) -> absl::Status {
      SQLite::Transaction transaction(c.database, SQLite::TransactionBehavior::IMMEDIATE);
      c.requests.Put(request, record);
      transaction.commit();
      return absl::OkStatus();
    });
  }

  absl::Status DropRequest(const std::string& request_id) override {
    return WithConnection([&](StoreConnection& c) -> absl::Status {
      c.requests.Drop(request_id);
      return absl::OkStatus();
    });
  }

  absl::Status PutGraphCache(const JobId& id, const graphcache::Snapshot& snapshot,
                             const std::vector<graphcache::EntryInfo>* entries) override {
    return WithConnection([&](StoreConnection& c) -> absl::Status {
      SQLite::Transaction transaction(c.database, SQLite::TransactionBehavior::IMMEDIATE);
      PF_RETURN_IF_ERROR(c.PutCache(id, snapshot));
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
    return WithConnection([&](StoreConnection& c) -> absl::StatusOr<std::optional<graphcache::Snapshot>> {
      Use select(c.cache);
      select->bind(1, id.value());
      if (!select->executeStep()) return JobNotFound(id);
      if (select->getColumn(0).isNull()) return std::nullopt;
      auto snapshot = graphcache::SnapshotFromJson(select->getColumn(0).getString());
      if (!snapshot.ok()) return Annotate(snapshot.status(), absl::StrCat("job ", id.value()));
      return std::optional<graphcache::Snapshot>(*std::move(snapshot));
    });
  }

  absl::StatusOr<std::vector<graphcache::EntryInfo>> GetGraphCacheEntries(const JobId& id) const override {
    return WithConnection([&](StoreConnection& c) -> absl::StatusOr<std::vector<graphcache::EntryInfo>> {
      Use select(c.entries);
      select->bind(1, id.value());
      if (!select->executeStep()) return JobNotFound(id);
      if (select->getColumn(0).isNull()) return std::vector<graphcache::EntryInfo>();
      auto entries = graphcache::EntriesFromJson(select->getColumn(0).getString());
      if (!entries.ok()) return Annotate(entries.status(), absl::StrCat("job ", id.value()));
      return entries;
    });
  }

  absl::Status PutCacheCommands(const JobId& id, const std::vector<graphcache::Command>& commands,
                                const graphcache::Snapshot* snapshot, const RequestKey& request) override {
    return WithConnection([&](StoreConnection& c) -> absl::Status {
      SQLite::Transaction transaction(c.database, SQLite::TransactionBehavior::IMMEDIATE);
      for (const graphcache::Command& command : commands) {
        Use put(c.put_command);
        put->bind(1, command.sequence);
        put->bind(2, graphcache::ToJson(command));
        put->bind(3, id.value());
        if (put->exec() != 1) return JobNotFound(id);
      }
      if (snapshot != nullptr) PF_RETURN_IF_ERROR(c.PutCache(id, *snapshot));
      c.requests.Put(request, {});
      transaction.commit();
      return absl::OkStatus();
    });
  }

  absl::StatusOr<std::vector<graphcache::Command>> GetCacheCommands(const JobId& id) const override {
    return WithConnection([&](StoreConnection& c) -> absl::StatusOr<std::vector<graphcache::Command>> {
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
  // Calls `f` with the connection; there is no other access to it. Takes the lock and turns SQLite's exceptions into
  // Status. While another process holds a lock on the file, releases this store's lock and waits, so that readers can
  // go on. Then calls `f` again. This is safe, because a transaction that writes meets the file's lock when it
  // begins, before it has changed anything.
  template <class F>
  std::invoke_result_t<F, StoreConnection&> WithConnection(F f) const {
    const absl::Duration patience = Patience::Left(kLongestLock);
    const Stopwatch watch;
    std::optional<LockWait> waiting;
    while (true) {
      {
        absl::MutexLock lock(&mu_);
        try {
          return f(connection_);
        } catch (const SQLite::Exception& error) {
          if (!IsLocked(error) || watch.Elapsed() >= patience) {
            const int system_error = SystemErrorOf(connection_.database.getHandle(), error);
            on_error_();
            return ToStatus(connection_.database.getFilename(), error, system_error);
          }
        }
      }
      if (!waiting) waiting.emplace(lock_waits_);
      absl::SleepFor(std::min(kLookAtLock, patience - watch.Elapsed()));
      if (!Patience::IsWanted()) return GivenUpError();
    }
  }

  // Counts a call that waits for another process, from construction to destruction.
  class LockWait {
   public:
    explicit LockWait(std::atomic<int>& count) : count_(count) { ++count_; }
    ~LockWait() { --count_; }
    LockWait(const LockWait&) = delete;
    LockWait& operator=(const LockWait&) = delete;

   private:
    std::atomic<int>& count_;
  };

  const std::function<void()> on_error_;
  mutable std::atomic<int> lock_waits_{0};
  mutable absl::Mutex mu_;
  mutable StoreConnection connection_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

absl::StatusOr<Job> GetInPieces(int64_t after_epoch,
                                const std::function<absl::StatusOr<Job>(int64_t after_epoch)>& get) {
  PF_ASSIGN_OR_RETURN(Job job, get(after_epoch));
  for (size_t got = job.epochs.size(); got == kMostEpochs;) {
    PF_ASSIGN_OR_RETURN(Job next, get(job.epochs.back().epoch));
    // The job was deleted meanwhile, and another one was made with its id.
    if (next.sequence != job.sequence) return GetInPieces(after_epoch, get);
    got = next.epochs.size();
    std::ranges::move(next.epochs, std::back_inserter(job.epochs));
    next.epochs = std::move(job.epochs);
    job = std::move(next);
  }
  return job;
}

absl::StatusOr<Job> JobStore::Get(const JobId& id) const {
  return GetInPieces(0, [&](int64_t after_epoch) { return Get(id, after_epoch); });
}

absl::StatusOr<bool> JobStore::IsAnswered(const RequestKey& request) const {
  PF_ASSIGN_OR_RETURN(const std::optional<RequestRecord> record, FindRequest(request));
  return record && record->answered;
}

absl::StatusOr<std::unique_ptr<JobStore>> JobStore::Open(const std::filesystem::path& path,
                                                         std::function<void()> on_error) {
  try {
    SQLite::Database database(path.string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE,
                              static_cast<int>(absl::ToInt64Milliseconds(kLongestLock)));
    PF_RETURN_IF_ERROR(PrepareDatabase(database));
    // From here on WithConnection waits for locks, not SQLite.
    database.setBusyTimeout(0);
    return std::make_unique<SqliteJobStore>(std::move(database), std::move(on_error));
  } catch (const SQLite::Exception& error) {
    return ToStatus(path.string(), error);
  }
}

}  // namespace permafrost::jobs
