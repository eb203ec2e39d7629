#include "data/catalog/import_roots.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/file.h"
#include "base/status.h"
#include "base/string_view.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;

// A path that is too long or a circle of links stays so; any other error is of the machine as it is just now.
absl::Status PathError(const fs::path& path, const std::error_code& error, std::string_view action) {
  const absl::Status status = SystemError(error.value(), path, action);
  const bool lasts = error.value() == ENAMETOOLONG || error.value() == ELOOP;
  return lasts ? absl::InvalidArgumentError(status.message()) : status;
}

// The type of what the path leads to; not_found: it leads to nothing.
absl::StatusOr<fs::file_type> TypeOf(const fs::path& path) {
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  if (type == fs::file_type::none) return PathError(path, error, "look at");
  return type;
}

// Makes the path absolute, follows symlinks, and removes `.` and `..`. Parts that do not exist stay as written.
absl::StatusOr<fs::path> Resolve(const fs::path& path) {
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error);
  fs::path resolved = error ? fs::path() : fs::weakly_canonical(absolute, error);
  if (error) return PathError(path, error, "resolve");
  return resolved;
}

// Compares by components: /data-old is not below /data.
bool IsBelow(const fs::path& path, const fs::path& root) {
  const auto end = root.end();
  // "/data/" has an empty last component.
  const auto last = root.has_filename() ? end : std::prev(end);
  return std::mismatch(root.begin(), last, path.begin(), path.end()).first == last;
}

absl::Status Outside(const fs::path& shown, std::string_view why) {
  return WithReason(absl::PermissionDeniedError(absl::StrCat(shown.string(), ": ", AbslView(why))),
                    "PATH_OUTSIDE_IMPORT_ROOTS", {{"path", shown.string()}});
}

absl::Status CheckBelowARoot(const fs::path& shown, const fs::path& resolved, std::span<const fs::path> roots) {
  absl::Status unresolved;
  for (const fs::path& root : roots) {
    // The root is resolved each time, since it may be a link that was moved.
    const auto at = Resolve(root);
    if (at.ok() && IsBelow(resolved, *at)) return absl::OkStatus();
    if (IsTransient(at.status())) unresolved = at.status();
  }
  PF_RETURN_IF_ERROR(unresolved);
  const std::string accepted =
      roots.empty()
          ? "this server allows no imports (--import-root)"
          : absl::StrCat("not below an import root (",
                         absl::StrJoin(roots, ", ",
                                       [](std::string* out, const fs::path& r) { absl::StrAppend(out, r.string()); }),
                         "; permafrostd --import-root names another)");
  return Outside(shown, accepted);
}

absl::Status CheckEntry(const fs::path& entry, std::span<const fs::path> roots) {
  PF_ASSIGN_OR_RETURN(const fs::file_type type, TypeOf(entry));
  std::error_code ignored;
  // Nobody knows where a link to nothing leads until something is there.
  if (type == fs::file_type::not_found && fs::is_symlink(fs::symlink_status(entry, ignored))) {
    return Outside(entry, "a link to what does not exist");
  }
  PF_ASSIGN_OR_RETURN(const fs::path resolved, Resolve(entry));
  return CheckBelowARoot(entry, resolved, roots);
}

// The entries of `directory`, if it is one, and `depth` levels of directories below.
absl::Status CheckDirectory(const fs::path& directory, std::span<const fs::path> roots, int depth) {
  PF_RETURN_IF_ERROR(CheckEntry(directory, roots));
  PF_ASSIGN_OR_RETURN(const fs::file_type type, TypeOf(directory));
  if (type != fs::file_type::directory) return absl::OkStatus();
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (depth > 0 && it->is_directory(ignored)) {
      PF_RETURN_IF_ERROR(CheckDirectory(it->path(), roots, depth - 1));
      continue;
    }
    PF_RETURN_IF_ERROR(CheckEntry(it->path(), roots));
  }
  return error ? PathError(directory, error, "list") : absl::OkStatus();
}

// The arrays in `directory`; what else lies there no import reads.
absl::Status CheckArrays(const fs::path& directory, std::span<const fs::path> roots) {
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const fs::path extension = it->path().extension();
    if (extension == ".npy" || extension == ".npz") PF_RETURN_IF_ERROR(CheckEntry(it->path(), roots));
  }
  return error ? PathError(directory, error, "list") : absl::OkStatus();
}

}  // namespace

absl::Status CheckInRoots(const fs::path& path, std::span<const fs::path> roots) {
  absl::Status checked = CheckBelowARoot(path, path, roots);
  if (checked.ok() || IsTransient(checked)) return checked;
  return absl::PermissionDeniedError("leads to outside the import roots");
}

absl::StatusOr<fs::path> ResolveSource(const fs::path& source, std::span<const fs::path> roots) {
  PF_ASSIGN_OR_RETURN(fs::path resolved, Resolve(source));
  PF_RETURN_IF_ERROR(CheckBelowARoot(source, resolved, roots));
  PF_ASSIGN_OR_RETURN(const fs::file_type type, TypeOf(resolved));
  if (type == fs::file_type::not_found) return absl::NotFoundError(absl::StrCat(source.string(), ": not found"));
  // A pipe is refused, because its reader would wait for ever.
  if (type != fs::file_type::directory && type != fs::file_type::regular) {
    Violations violations;
    violations.Add("options.source_path", absl::StrCat(source.string(), " is neither a file nor a directory"));
    return violations.ToStatus();
  }
  return resolved;
}

absl::Status CheckEntriesInRoots(const fs::path& source, std::span<const fs::path> roots) {
  PF_ASSIGN_OR_RETURN(const fs::file_type type, TypeOf(source));
  if (type != fs::file_type::directory) return CheckEntry(source, roots);
  PF_RETURN_IF_ERROR(CheckArrays(source, roots));
  PF_RETURN_IF_ERROR(CheckDirectory(source / "raw", roots, 0));
  return CheckDirectory(source / "split", roots, 1);
}

}  // namespace permafrost::data
