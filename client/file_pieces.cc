#include "client/file_pieces.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <ios>
#include <string>

#include "absl/strings/str_cat.h"

namespace permafrost::client {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 19;

absl::Status CannotRead(const std::filesystem::path& path) {
  return absl::UnavailableError(
      absl::StrCat(path.string(), ": cannot be read", errno == 0 ? "" : ": ", errno == 0 ? "" : std::strerror(errno)));
}

}  // namespace

absl::Status ReadPieces(const std::filesystem::path& path, int64_t offset,
                        const std::function<bool(std::string_view)>& take) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  in.seekg(offset);
  if (!in) return CannotRead(path);
  std::string piece(kPieceBytes, '\0');
  while (in) {
    in.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    const auto got = static_cast<size_t>(in.gcount());
    if (got > 0 && !take(std::string_view(piece).substr(0, got))) return absl::OkStatus();
  }
  return in.eof() ? absl::OkStatus() : CannotRead(path);
}

}  // namespace permafrost::client
