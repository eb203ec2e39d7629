#include "jobs/database_care.h"

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
