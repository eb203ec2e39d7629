// Takes care of a database before anything in it is changed.
// Threads: each call has the connection for itself. Throw SQLite::Exception.
#pragma once

#include "absl/status/status.h"

namespace SQLite {
class Database;
}

namespace permafrost::jobs {

// SQLite's quick_check; of a small file its integrity_check, which compares indices with their tables too. DataLoss,
// naming the file, the first finding and where there may be a good copy.
absl::Status CheckDatabase(SQLite::Database& database);

// A copy of a database of a version between 1 and `newest` beside it, on disk when Ok; never in place of another one.
// Nothing for any other version, as for a new file. Errors: those of the disk.
absl::Status BackUpBeforeMigration(SQLite::Database& database, int newest);

}  // namespace permafrost::jobs
