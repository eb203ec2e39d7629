// The database file of the job store: its tables, and SQLite's errors as Status.
// Threads: each call has the connection for itself.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace SQLite {
class Database;
class Exception;
}  // namespace SQLite

namespace permafrost::jobs {

// Sets the connection up and brings its file to the present schema, from nothing or from an older one; of two processes
// that do so at once one waits. FailedPrecondition for a schema version that is not known. Throws SQLite::Exception.
absl::Status PrepareDatabase(SQLite::Database& database);

// `file`: named in the message.
absl::Status ToStatus(const std::string& file, const SQLite::Exception& error);

}  // namespace permafrost::jobs
