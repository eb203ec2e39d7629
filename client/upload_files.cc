#include "client/upload_files.h"

#include <algorithm>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/status.h"
#include "client/job_create.h"

namespace permafrost::client {
namespace {

namespace fs = std::filesystem;

// The server takes messages of 1 MiB at most.
constexpr size_t kChunkBytes = size_t{1} << 19;

absl::Status CannotRead(const fs::path& path) {
  return absl::UnavailableError(absl::StrCat(path.string(), ": cannot be read"));
}

// Calls `take` with each piece from `offset` on, until it returns false.
absl::Status ReadPieces(const fs::path& path, int64_t offset, const std::function<bool(std::string_view)>& take) {
  std::ifstream in(path, std::ios::binary);
  in.seekg(offset);
  if (!in) return CannotRead(path);
  std::string piece(kChunkBytes, '\0');
  while (in) {
    in.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    const auto got = static_cast<size_t>(in.gcount());
    if (got > 0 && !take(std::string_view(piece).substr(0, got))) return absl::OkStatus();
  }
  return in.eof() ? absl::OkStatus() : CannotRead(path);
}

// Path in the upload, and on this machine.
using Named = std::vector<std::pair<std::string, fs::path>>;

absl::StatusOr<Named> FindFiles(const fs::path& source) {
  std::error_code error;
  if (fs::is_regular_file(source, error)) return Named{{source.filename().string(), source}};
  if (!fs::is_directory(source, error)) return absl::NotFoundError(absl::StrCat(source.string(), ": not found"));
  Named found;
  auto at = fs::recursive_directory_iterator(source, fs::directory_options::follow_directory_symlink, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    const bool hidden = at->path().filename().string().front() == '.';
    std::error_code ignored;
    if (hidden && at->is_directory(ignored)) at.disable_recursion_pending();
    // Hidden files are those that a file manager leaves, such as .DS_Store. The server takes no such names.
    if (hidden || !at->is_regular_file(ignored)) continue;
    found.emplace_back(at->path().lexically_relative(source).generic_string(), at->path());
  }
  if (error) return absl::UnavailableError(absl::StrCat(source.string(), ": ", error.message()));
  if (found.empty()) return absl::InvalidArgumentError(absl::StrCat(source.string(), ": holds no files"));
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

absl::StatusOr<UploadFiles> UploadFiles::Find(const fs::path& source, const std::string& id) {
  PF_ASSIGN_OR_RETURN(const Named found, FindFiles(source));
  UploadFiles files;
  StreamHash all;
  for (const auto& [name, path] : found) {
    StreamHash hash;
    int64_t bytes = 0;
    PF_RETURN_IF_ERROR(ReadPieces(path, 0, [&](std::string_view piece) {
      hash.Update(piece.data(), piece.size());
      bytes += static_cast<int64_t>(piece.size());
      return true;
    }));
    v1::UploadStart::File& file = *files.start_.add_files();
    file.set_path(name);
    file.set_bytes(bytes);
    file.set_xxh3(HashHex(hash.Digest()));
    const std::string line = absl::StrCat(name, "\n", bytes, " ", file.xxh3(), "\n");
    all.Update(line.data(), line.size());
    files.bytes_ += bytes;
    files.paths_.push_back(path);
  }
  constexpr std::string_view kCollection = "uploads/";
  const std::string name = id.empty() ? absl::StrCat("upload-", HashHex(all.Digest())) : id;
  files.start_.set_name(name.starts_with(kCollection) ? name : std::string(kCollection) + name);
  files.start_.set_request_id(MakeUuid());
  return files;
}

absl::Status UploadFiles::ReadRest(const v1::Upload& received,
                                   const std::function<bool(const v1::UploadChunk&)>& send) const {
  bool goes_on = true;
  for (int i = 0; i < start_.files_size() && goes_on; ++i) {
    int64_t offset = i < received.files_size() ? received.files(i).received_bytes() : 0;
    if (offset >= start_.files(i).bytes()) continue;
    PF_RETURN_IF_ERROR(ReadPieces(paths_[static_cast<size_t>(i)], offset, [&](std::string_view piece) {
      v1::UploadChunk chunk;
      chunk.set_file(i);
      chunk.set_offset(offset);
      chunk.set_data(piece.data(), piece.size());
      chunk.set_xxh3(Hash64(piece));
      offset += static_cast<int64_t>(piece.size());
      goes_on = send(chunk);
      return goes_on;
    }));
  }
  return absl::OkStatus();
}

}  // namespace permafrost::client
