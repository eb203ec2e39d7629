#include "data/source_file.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;

// Where an open file lies, links resolved; nullopt where the system does not tell.
std::optional<fs::path> OpenedPath(int fd) {
  std::error_code error;
  fs::path path = fs::read_symlink(absl::StrCat("/proc/self/fd/", fd), error);
  if (error) return std::nullopt;
  return path;
}

// The file's own bytes.
class RawReader final : public SourceReader {
 public:
  RawReader(std::string name, int fd, ImportMonitor& monitor) : name_(std::move(name)), fd_(fd), monitor_(monitor) {}
  ~RawReader() override { close(fd_); }
  RawReader(const RawReader&) = delete;
  RawReader& operator=(const RawReader&) = delete;

  absl::StatusOr<std::size_t> Read(char* out, std::size_t capacity) override {
    ssize_t n;
    do {
      n = read(fd_, out, capacity);
    } while (n < 0 && errno == EINTR);
    if (n < 0) return absl::InternalError(absl::StrCat("cannot read: ", std::generic_category().message(errno)));
    consumed_ += n;
    PF_RETURN_IF_ERROR(monitor_.Advance(name_, n));
    return static_cast<std::size_t>(n);
  }
  void Forget() override { monitor_.Advance(name_, -std::exchange(consumed_, 0)).IgnoreError(); }

 private:
  std::string name_;
  int fd_;
  ImportMonitor& monitor_;
  int64_t consumed_ = 0;
};

// Inflates one or more gzip members, as gunzip does.
class GzipReader final : public SourceReader {
 public:
  explicit GzipReader(std::unique_ptr<SourceReader> raw) : raw_(std::move(raw)), in_(1 << 16) {}
  ~GzipReader() override {
    if (initialized_) inflateEnd(&stream_);
  }
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  absl::StatusOr<std::size_t> Read(char* out, std::size_t capacity) override {
    if (!initialized_) {
      constexpr int kGzipOnly = 16;
      if (inflateInit2(&stream_, MAX_WBITS + kGzipOnly) != Z_OK) return absl::InternalError("zlib: cannot start");
      initialized_ = true;
    }
    stream_.next_out = reinterpret_cast<Bytef*>(out);
    stream_.avail_out = static_cast<uInt>(capacity);
    while (stream_.avail_out == capacity) {
      PF_RETURN_IF_ERROR(corrupt_);
      if (stream_.avail_in == 0) {
        PF_ASSIGN_OR_RETURN(const std::size_t n, raw_->Read(in_.data(), in_.size()));
        if (n == 0) {
          if (member_ended_) return std::size_t{0};
          return absl::InvalidArgumentError("truncated gzip: the file ends before its compressed data does");
        }
        stream_.next_in = reinterpret_cast<Bytef*>(in_.data());
        stream_.avail_in = static_cast<uInt>(n);
      }
      if (std::exchange(member_ended_, false)) inflateReset(&stream_);
      const int result = inflate(&stream_, Z_NO_FLUSH);
      if (result == Z_STREAM_END) {
        member_ended_ = true;
      } else if (result != Z_OK && result != Z_BUF_ERROR) {
        // What was inflated before goes out first, so that the error is reported at the row where it lies.
        corrupt_ = absl::InvalidArgumentError(
            absl::StrCat("corrupt gzip: ", stream_.msg != nullptr ? stream_.msg : zError(result)));
      }
    }
    return capacity - stream_.avail_out;
  }
  void Forget() override { raw_->Forget(); }

 private:
  std::unique_ptr<SourceReader> raw_;
  std::vector<char> in_;
  z_stream stream_{};
  bool initialized_ = false;
  bool member_ended_ = false;
  absl::Status corrupt_;
};

}  // namespace

absl::StatusOr<std::optional<SourceFile>> FindSourceFile(const fs::path& source, std::string_view stem) {
  for (const bool gzip : {true, false}) {
    SourceFile file{.path = {}, .name = absl::StrCat(AbslView(stem), gzip ? ".csv.gz" : ".csv"), .gzip = gzip};
    file.path = source / file.name;
    std::error_code error;
    const fs::file_status status = fs::status(file.path, error);
    if (!fs::exists(status)) {
      if (status.type() == fs::file_type::not_found) continue;
      return absl::PermissionDeniedError(absl::StrCat(file.name, ": ", error.message()));
    }
    if (!fs::is_regular_file(status)) {
      return absl::InvalidArgumentError(absl::StrCat(file.name, ": is no regular file"));
    }
    file.bytes = static_cast<int64_t>(fs::file_size(file.path, error));
    return file;
  }
  return std::nullopt;
}

absl::StatusOr<std::unique_ptr<SourceReader>> SourceReader::Open(const SourceFile& file, ImportMonitor& monitor) {
  const int fd = open(file.path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    const std::string message = absl::StrCat(file.name, ": cannot open: ", std::generic_category().message(errno));
    return errno == ENOENT ? absl::NotFoundError(message) : absl::PermissionDeniedError(message);
  }
  std::unique_ptr<SourceReader> reader = std::make_unique<RawReader>(file.name, fd, monitor);
  if (const auto& may_read = monitor.limits().may_read) {
    if (const auto path = OpenedPath(fd); path && !may_read(*path)) {
      return absl::PermissionDeniedError(absl::StrCat(file.name, ": leads to outside the import roots"));
    }
  }
  if (file.gzip) reader = std::make_unique<GzipReader>(std::move(reader));
  return reader;
}

}  // namespace permafrost::data
