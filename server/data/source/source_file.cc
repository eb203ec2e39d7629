#include "data/source/source_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/source/zip_member.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;

// The error of looking at a source file or opening it. The want of descriptors or memory and a failing disk pass by
// themselves; a fault of what the user put there stays.
absl::Status SourceError(int error, const std::string& name, std::string_view action) {
  absl::Status status = SystemError(error, name, action);
  if (absl::IsNotFound(status) || absl::IsResourceExhausted(status) || error == EIO || error == ESTALE) return status;
  return absl::PermissionDeniedError(status.message());
}

// Returns the path of an open file, called `name` in messages, links resolved; nullopt if the system does not tell.
// Errors: transient, since a file whose path is not told just now must not be read unasked.
absl::StatusOr<std::optional<fs::path>> OpenedPath(int fd, const std::string& name) {
  std::error_code error;
  fs::path path = fs::read_symlink(absl::StrCat("/proc/self/fd/", fd), error);
  if (!error) return std::optional<fs::path>(std::move(path));
  absl::Status fault = SourceError(error.value(), name, "learn where it lies");
  if (IsTransient(fault)) return fault;
  return std::nullopt;
}

// The file's own bytes.
class RawReader final : public SourceReader {
 public:
  RawReader(std::string name, Descriptor file, ImportMonitor& monitor)
      : name_(std::move(name)), file_(std::move(file)), monitor_(monitor) {}

  absl::StatusOr<std::size_t> Read(char* out, std::size_t capacity) override {
    ssize_t n;
    do {
      n = read(file_.get(), out, capacity);
    } while (n < 0 && errno == EINTR);
    if (n < 0) return SystemFault(errno, "read");
    consumed_ += n;
    PF_RETURN_IF_ERROR(monitor_.Advance(name_, n));
    return static_cast<std::size_t>(n);
  }
  absl::Status Skip(uint64_t bytes) override {
    if (lseek(file_.get(), static_cast<off_t>(bytes), SEEK_CUR) >= 0) return absl::OkStatus();
    // Farther than any file can be long.
    if (errno == EINVAL || errno == EOVERFLOW) return absl::InvalidArgumentError("the file ends too early");
    return SystemFault(errno, "seek");
  }
  void Rewind() override { monitor_.Advance(name_, -std::exchange(consumed_, 0)).IgnoreError(); }

 private:
  std::string name_;
  Descriptor file_;
  ImportMonitor& monitor_;
  int64_t consumed_ = 0;
};

// Inflates one or more gzip members, as gunzip does.
class GzipReader final : public SourceReader {
 public:
  GzipReader(std::unique_ptr<SourceReader> raw, const UnpackBound& bound)
      : raw_(std::move(raw)), bound_(bound), in_(1 << 16) {}
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
        // The text that was inflated before goes out first, so that the error is reported at the row where it lies.
        corrupt_ = absl::InvalidArgumentError(
            absl::StrCat("corrupt gzip: ", stream_.msg != nullptr ? stream_.msg : zError(result)));
      }
    }
    PF_RETURN_IF_ERROR(bound_.Add(capacity - stream_.avail_out));
    return capacity - stream_.avail_out;
  }
  void Rewind() override { raw_->Rewind(); }

 private:
  std::unique_ptr<SourceReader> raw_;
  UnpackBound bound_;
  std::vector<char> in_;
  z_stream stream_{};
  bool initialized_ = false;
  bool member_ended_ = false;
  absl::Status corrupt_;
};

// Unpacks one or more zstd frames, as unzstd does.
class ZstdReader final : public SourceReader {
 public:
  ZstdReader(std::unique_ptr<SourceReader> raw, const UnpackBound& bound)
      : raw_(std::move(raw)), bound_(bound), in_(ZSTD_DStreamInSize()), stream_(ZSTD_createDStream()) {}
  ~ZstdReader() override { ZSTD_freeDStream(stream_); }
  ZstdReader(const ZstdReader&) = delete;
  ZstdReader& operator=(const ZstdReader&) = delete;

  absl::StatusOr<std::size_t> Read(char* out, std::size_t capacity) override {
    if (stream_ == nullptr) return absl::InternalError("zstd: cannot start");
    ZSTD_outBuffer to{out, capacity, 0};
    while (to.pos == 0) {
      PF_RETURN_IF_ERROR(corrupt_);
      // It may hold back text of what it was given before.
      if (from_.pos == from_.size && !full_) {
        PF_ASSIGN_OR_RETURN(const std::size_t n, raw_->Read(in_.data(), in_.size()));
        if (n == 0) {
          if (frame_ended_) return std::size_t{0};
          return absl::InvalidArgumentError("truncated zstd: the file ends before its compressed data does");
        }
        from_ = {in_.data(), n, 0};
      }
      const std::size_t result = ZSTD_decompressStream(stream_, &to, &from_);
      if (ZSTD_isError(result) != 0) {
        // Text that was unpacked before goes out first, as for gzip.
        corrupt_ = absl::InvalidArgumentError(absl::StrCat("corrupt zstd: ", ZSTD_getErrorName(result)));
      }
      frame_ended_ = result == 0;
      full_ = to.pos == to.size && !frame_ended_;
    }
    PF_RETURN_IF_ERROR(bound_.Add(to.pos));
    return to.pos;
  }
  void Rewind() override { raw_->Rewind(); }

 private:
  std::unique_ptr<SourceReader> raw_;
  UnpackBound bound_;
  std::vector<char> in_;
  ZSTD_DStream* stream_;
  ZSTD_inBuffer from_{nullptr, 0, 0};
  bool frame_ended_ = false, full_ = false;
  absl::Status corrupt_;
};

class TextReader final : public SourceReader {
 public:
  explicit TextReader(std::unique_ptr<SourceReader> bytes) : bytes_(std::move(bytes)) {}

  absl::StatusOr<std::size_t> Read(char* out, std::size_t capacity) override {
    if (begun_) return bytes_->Read(out, capacity);
    constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
    std::size_t read = 0;
    // It may come in pieces.
    while (read < std::min(kByteOrderMark.size(), capacity)) {
      PF_ASSIGN_OR_RETURN(const std::size_t n, bytes_->Read(out + read, capacity - read));
      if (n == 0) break;
      read += n;
    }
    begun_ = true;
    if (!std::string_view(out, read).starts_with(kByteOrderMark)) return read;
    read -= kByteOrderMark.size();
    std::memmove(out, out + kByteOrderMark.size(), read);
    return read > 0 ? read : bytes_->Read(out, capacity);
  }
  void Rewind() override { bytes_->Rewind(); }

 private:
  std::unique_ptr<SourceReader> bytes_;
  bool begun_ = false;
};

absl::StatusOr<Packing> FindPacking(int fd, const std::string& name) {
  constexpr std::array<unsigned char, 2> kGzipMagic = {0x1f, 0x8b};
  constexpr std::array<unsigned char, 4> kZstdMagic = {0x28, 0xb5, 0x2f, 0xfd};
  std::array<unsigned char, 4> first{};
  ssize_t n;
  do {
    n = pread(fd, first.data(), first.size(), 0);
  } while (n < 0 && errno == EINTR);
  if (n < 0) return SystemError(errno, name, "read");
  if (n >= 2 && std::equal(kGzipMagic.begin(), kGzipMagic.end(), first.begin())) return Packing::kGzip;
  return n == 4 && first == kZstdMagic ? Packing::kZstd : Packing::kPlain;
}

}  // namespace

absl::Status SourceReader::SystemFault(int error, std::string_view action) {
  return AsTransient(
      absl::InternalError(absl::StrCat("cannot ", AbslView(action), ": ", std::generic_category().message(error))));
}

absl::Status SourceReader::Skip(uint64_t bytes) {
  std::vector<char> passed(static_cast<size_t>(std::min<uint64_t>(bytes, 1 << 16)));
  while (bytes > 0) {
    PF_ASSIGN_OR_RETURN(const std::size_t n,
                        Read(passed.data(), static_cast<size_t>(std::min<uint64_t>(bytes, passed.size()))));
    if (n == 0) return absl::InvalidArgumentError("the file ends too early");
    bytes -= n;
  }
  return absl::OkStatus();
}

absl::StatusOr<fs::file_type> TypeOfSource(const fs::path& path, const std::string& name) {
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  if (type == fs::file_type::none) return SourceError(error.value(), name, "look at it");
  return type;
}

absl::Status CheckListed(const std::error_code& error, const std::string& name) {
  if (!error || error.value() == ENOENT || error.value() == ENOTDIR) return absl::OkStatus();
  return SourceError(error.value(), name, "list");
}

absl::StatusOr<std::optional<SourceFile>> FindFileAt(const fs::path& path, std::string name, Packing packing) {
  SourceFile file{.path = path, .name = std::move(name), .packing = packing};
  PF_ASSIGN_OR_RETURN(const fs::file_type type, TypeOfSource(path, file.name));
  if (type == fs::file_type::not_found) return std::nullopt;
  if (type != fs::file_type::regular) {
    return absl::InvalidArgumentError(absl::StrCat(file.name, ": is no regular file"));
  }
  std::error_code error;
  file.bytes = static_cast<int64_t>(fs::file_size(path, error));
  return file;
}

absl::StatusOr<std::optional<SourceFile>> FindSourceFile(const fs::path& source, std::string_view stem) {
  constexpr std::array<std::pair<std::string_view, Packing>, 3> kForms = {
      {{".csv.gz", Packing::kGzip}, {".csv.zst", Packing::kZstd}, {".csv", Packing::kPlain}}};
  for (const auto& [ending, packing] : kForms) {
    std::string name = absl::StrCat(AbslView(stem), AbslView(ending));
    fs::path path = source / name;
    PF_ASSIGN_OR_RETURN(auto file, FindFileAt(path, std::move(name), packing));
    if (file) return file;
  }
  return std::nullopt;
}

absl::StatusOr<SourceFile> FindRequiredSourceFile(const fs::path& source, std::string_view stem) {
  PF_ASSIGN_OR_RETURN(auto file, FindSourceFile(source, stem));
  if (file) return *std::move(file);
  return absl::NotFoundError(absl::StrCat(AbslView(stem), ".csv.gz: not found, nor ", AbslView(stem), ".csv.zst or ",
                                          AbslView(stem), ".csv, in ", source.string()));
}

absl::StatusOr<bool> HoldsAny(const fs::path& directory, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    PF_ASSIGN_OR_RETURN(const fs::file_type type, TypeOfSource(directory / name, std::string(name)));
    if (type != fs::file_type::not_found) return true;
  }
  return false;
}

absl::StatusOr<Descriptor> OpenSource(const SourceFile& file, const ImportMonitor& monitor) {
  // A pipe put in the file's place must not hold the import up.
  Descriptor opened = OpenRetrying(file.path, O_RDONLY | O_NONBLOCK);
  if (!opened.valid()) return SourceError(errno, file.name, "open");
  if (const auto& may_read = monitor.limits().may_read) {
    PF_ASSIGN_OR_RETURN(const std::optional<fs::path> path, OpenedPath(opened.get(), file.name));
    if (path) PF_RETURN_IF_ERROR(Annotate(may_read(*path), file.name));
  }
  return opened;
}

uint64_t BytesOf(const Descriptor& opened) {
  struct stat info {};
  return fstat(opened.get(), &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
}

absl::StatusOr<std::unique_ptr<SourceReader>> SourceReader::Open(const SourceFile& file, ImportMonitor& monitor) {
  if (file.packing == Packing::kZip) return OpenZipMember(file, file.member, monitor);
  PF_ASSIGN_OR_RETURN(Descriptor opened, OpenSource(file, monitor));
  Packing packing = file.packing;
  if (packing == Packing::kFound) {
    PF_ASSIGN_OR_RETURN(packing, FindPacking(opened.get(), file.name));
  }
  const UnpackBound bound(BytesOf(opened), monitor.limits());
  std::unique_ptr<SourceReader> reader = std::make_unique<RawReader>(file.name, std::move(opened), monitor);
  if (packing == Packing::kGzip) reader = std::make_unique<GzipReader>(std::move(reader), bound);
  if (packing == Packing::kZstd) reader = std::make_unique<ZstdReader>(std::move(reader), bound);
  return reader;
}

absl::StatusOr<std::unique_ptr<SourceReader>> SourceReader::OpenText(const SourceFile& file, ImportMonitor& monitor) {
  PF_ASSIGN_OR_RETURN(auto reader, Open(file, monitor));
  return std::make_unique<TextReader>(std::move(reader));
}

namespace {

uint64_t TimesOrMost(uint64_t a, uint64_t b) {
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  return b != 0 && a > kMost / b ? kMost : a * b;
}

}  // namespace

UnpackBound::UnpackBound(uint64_t packed_bytes, const ImportLimits& limits)
    : packed_(packed_bytes),
      most_expansion_(limits.most_expansion),
      harmless_(limits.harmless_unpacked_bytes),
      most_(std::max(TimesOrMost(packed_bytes, limits.most_expansion), harmless_)) {}

absl::Status UnpackBound::Add(std::size_t bytes) {
  unpacked_ += bytes;
  if (unpacked_ <= most_) return absl::OkStatus();
  return WithReason(absl::ResourceExhaustedError(
                        absl::StrCat("unpacks to more than ", most_, " bytes, of ", packed_,
                                     " packed ones; accepted: ", harmless_, ", or ", most_expansion_,
                                     " times the packed ones where that is more. If it is meant, unpack it or write it "
                                     "uncompressed, and import that")),
                    kUnpacksTooFar, {{"packed_bytes", absl::StrCat(packed_)}, {"most_bytes", absl::StrCat(most_)}});
}

}  // namespace permafrost::data
