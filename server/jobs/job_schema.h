// The database file of the job store: its tables, its care before anything in it is changed, and SQLite's errors as
// Status.
// Threads: each call has the connection for itself.
#pragma once

#include <string>

#include "absl/status/status.h"

struct sqlite3;
namespace SQLite {
class Database;
class Exception;
}  // namespace SQLite

namespace permafrost::jobs {

// Sets the connection up and brings its file to the present schema, from nothing or from an older one; of two processes
// that do so at once one waits. An older one is copied to FILE.vVERSION-backup first (-backup-2 and so on where that is
// there), on disk before anything of it changes. FailedPrecondition for a schema version that is not known; DataLoss,
// with nothing changed, for a file that SQLite's own check finds damaged. Throws SQLite::Exception.
absl::Status PrepareDatabase(SQLite::Database& database);

// True if reading, writing, truncating or syncing the database or its log failed. The errno that SQLite keeps for a
// file (SQLITE_FCNTL_LAST_ERRNO) then belongs to this error and to no other one.
bool IsOfFileBytes(const SQLite::Exception& error);
// The errno behind an error that `database` just met; 0: not known.
int SystemErrorOf(sqlite3* database, const SQLite::Exception& met);
// The errno that keeps SQLite from opening `file`; 0: nothing does, or it is not known.
int WhyNotOpened(const std::string& file);

// `file`: named in the message. `system_error`: the errno behind it, which an I/O error's message ends with; 0:
// unknown. Unavailable where that says that nothing may be written just now, or that descriptors or memory are lacking.
absl::Status ToStatus(const std::string& file, const SQLite::Exception& error, int system_error = 0);

// SQLite's quick_check; of a small file its integrity_check, which compares indices with their tables too. DataLoss,
// naming the file, the first finding and where there may be a good copy. Throws SQLite::Exception.
absl::Status CheckDatabase(SQLite::Database& database);

// A copy of a database of a version between 1 and `newest` beside it, on disk when Ok; never in place of another one.
// Nothing for any other version, as for a new file. Errors: those of the disk. Throws SQLite::Exception.
absl::Status BackUpBeforeMigration(SQLite::Database& database, int newest);

}  // namespace permafrost::jobs
