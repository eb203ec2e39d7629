#include "data/source/source_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zip.h>
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

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "base/string_view.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;

// Returns the error for a source file that cannot be looked at or opened. It is transient if descriptors or memory
// ran out or the disk failed. Otherwise it is NotFound or PermissionDenied and permanent, since the user's file is at
// fault.
absl::Status SourceError(int error, const std::string& name, std::string_view action) {
  absl::Status status = SystemError(error, name, action);
  if (absl::IsNotFound(status) || absl::IsResourceExhausted(status) || error == EIO || error == ESTALE) return status;
  return absl::PermissionDeniedError(status.message());
}

// Returns the path of an open file with links resolved, or nullopt if the system does not tell it. Messages call the
// file `name`. A transient failure is an error, since a file whose path is only unknown for now must not be read
// unchecked.
absl::StatusOr<std::optional<fs::path>> OpenedPath(int fd, const std::string& name) {
  std::error_code error;
  fs::path path = fs::read_symlink(absl::StrCat("/proc/self/fd/", fd), error);
  if (!error) return std::optional<fs::path>(std::move(path));
  absl::Status fault = SourceError(error.value(), name, "learn where it lies");
  if (IsTransient(fault)) return fault;
  return std::nullopt;
}

// Reads the bytes of the file as they are on disk.
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
    // The seek leads beyond the largest possible file.
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
        // The text inflated so far is returned first, so that the error is reported at its own row.
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
      // The stream may still hold text of earlier input.
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
        // The text unpacked so far is returned first, as in GzipReader.
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
    // The mark may arrive in several pieces.
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
  // O_NONBLOCK: a pipe in the file's place must not block the import.
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

namespace {

struct CloseArchive {
  void operator()(zip_t* archive) const { zip_discard(archive); }
};
struct CloseMember {
  void operator()(zip_file_t* member) const { zip_fclose(member); }
};

// Returns the errno if the machine is at fault, and 0 if the archive is. EINVAL, EFBIG and EOVERFLOW are faults of
// the archive, since it may state any offset.
int MachineErrno(const zip_error_t* error) {
  if (zip_error_code_zip(error) == ZIP_ER_MEMORY) return ENOMEM;
  const int code = zip_error_system_type(error) == ZIP_ET_SYS ? zip_error_code_system(error) : 0;
  return code == EINVAL || code == EFBIG || code == EOVERFLOW ? 0 : code;
}

class ZipMemberReader final : public SourceReader {
 public:
  ZipMemberReader(const SourceFile& file, std::unique_ptr<zip_t, CloseArchive> archive,
                  std::unique_ptr<zip_file_t, CloseMember> member, const UnpackBound& bound, double packed_share,
                  ImportMonitor& monitor)
      : archive_name_(file.name),
        archive_(std::move(archive)),
        member_(std::move(member)),
        bound_(bound),
        packed_share_(packed_share),
        monitor_(monitor) {}

  absl::StatusOr<std::size_t> Read(char* out, std::size_t capacity) override {
    errno = 0;
    const zip_int64_t n = zip_fread(member_.get(), out, capacity);
    // ENOTTY is no error: stdio asks at its first read whether the file is a terminal.
    if (errno != 0 && errno != ENOTTY) met_ = errno;
    if (n < 0) {
      zip_error_t* const error = zip_file_get_error(member_.get());
      // libzip reports a failed read as an archive that ends too early, without an errno. If the failed call still
      // has bytes to return, libzip reports the failure only at the next call. So the errno is kept in met_.
      const int failed = zip_error_code_zip(error) == ZIP_ER_EOF ? met_ : MachineErrno(error);
      if (failed != 0) return SystemFault(failed, "read");
      return absl::InvalidArgumentError(absl::StrCat("corrupt zip: ", zip_error_strerror(error)));
    }
    unpacked_ += n;
    PF_RETURN_IF_ERROR(bound_.Add(static_cast<std::size_t>(n)));
    const auto packed = static_cast<int64_t>(static_cast<double>(unpacked_) * packed_share_);
    PF_RETURN_IF_ERROR(monitor_.Advance(archive_name_, packed - std::exchange(told_, packed)));
    return static_cast<std::size_t>(n);
  }
  void Rewind() override { monitor_.Advance(archive_name_, -std::exchange(told_, 0)).IgnoreError(); }

 private:
  std::string archive_name_;
  std::unique_ptr<zip_t, CloseArchive> archive_;
  std::unique_ptr<zip_file_t, CloseMember> member_;
  UnpackBound bound_;
  double packed_share_;
  ImportMonitor& monitor_;
  int64_t unpacked_ = 0, told_ = 0;
  int met_ = 0;  // the last errno that a call of libzip set; 0 if none
};

// Opens an archive. If `bytes` is not null, sets it to the size of the whole archive.
absl::StatusOr<std::unique_ptr<zip_t, CloseArchive>> OpenArchive(const SourceFile& file, const ImportMonitor& monitor,
                                                                 uint64_t* bytes = nullptr) {
  PF_ASSIGN_OR_RETURN(Descriptor opened, OpenSource(file, monitor));
  if (bytes != nullptr) *bytes = BytesOf(opened);
  int code = 0;
  std::unique_ptr<zip_t, CloseArchive> archive(zip_fdopen(opened.get(), 0, &code));
  if (archive == nullptr) {
    zip_error_t error;
    zip_error_init_with_code(&error, code);  // this call reads errno
    const int failed = MachineErrno(&error);
    const std::string message = zip_error_strerror(&error);
    zip_error_fini(&error);
    if (failed != 0) return SystemError(failed, file.name, "open");
    return absl::InvalidArgumentError(absl::StrCat(file.name, ": is no ZIP archive: ", message));
  }
  opened.Release();  // the archive owns the descriptor now
  return archive;
}

// Returns true for a path that leads out of the archive. Such a path would do no harm here, since nothing is unpacked
// to disk. But it shows that the archive is hostile, so the whole archive is refused.
bool LeadsElsewhere(absl::string_view name) {
  const std::vector<absl::string_view> parts = absl::StrSplit(name, absl::ByAnyChar("/\\"));
  return parts.front().empty() || std::ranges::find(parts, "..") != parts.end();
}

}  // namespace

absl::StatusOr<std::vector<ZipEntry>> ListZip(const SourceFile& file, const ImportMonitor& monitor) {
  PF_ASSIGN_OR_RETURN(const auto archive, OpenArchive(file, monitor));
  std::vector<ZipEntry> entries;
  const zip_int64_t count = zip_get_num_entries(archive.get(), 0);
  for (zip_int64_t i = 0; i < count; ++i) {
    zip_stat_t stat;
    zip_stat_init(&stat);
    if (zip_stat_index(archive.get(), static_cast<zip_uint64_t>(i), 0, &stat) != 0 || stat.name == nullptr) continue;
    if (LeadsElsewhere(stat.name)) {
      return absl::InvalidArgumentError(absl::StrCat(file.name, ": has a member ", absl::CHexEscape(stat.name),
                                                     ", whose path leads out of the archive; accepted: relative paths "
                                                     "without '..'"));
    }
    entries.push_back({.name = stat.name, .packed = stat.comp_size, .unpacked = stat.size});
  }
  return entries;
}

absl::StatusOr<std::unique_ptr<SourceReader>> OpenZipMember(const SourceFile& file, const std::string& member,
                                                            ImportMonitor& monitor) {
  uint64_t archive_bytes = 0;
  PF_ASSIGN_OR_RETURN(auto archive, OpenArchive(file, monitor, &archive_bytes));
  const zip_int64_t index = zip_name_locate(archive.get(), member.c_str(), 0);
  if (index < 0) return absl::NotFoundError(absl::StrCat(file.name, ": has no member ", member));
  zip_stat_t stat;
  zip_stat_init(&stat);
  const auto place = static_cast<zip_uint64_t>(index);
  std::unique_ptr<zip_file_t, CloseMember> opened_member(
      zip_stat_index(archive.get(), place, 0, &stat) == 0 ? zip_fopen_index(archive.get(), place, 0) : nullptr);
  if (opened_member == nullptr) {
    zip_error_t* const error = zip_get_error(archive.get());
    const std::string name = absl::StrCat(file.name, ": ", member);
    if (const int failed = MachineErrno(error); failed != 0) return SystemError(failed, name, "open");
    return absl::InvalidArgumentError(absl::StrCat(name, ": cannot be unpacked: ", zip_error_strerror(error)));
  }
  const double share = stat.size > 0 ? static_cast<double>(stat.comp_size) / static_cast<double>(stat.size) : 0;
  // The archive may state a wrong packed size, so the size of the whole archive limits it.
  const UnpackBound bound(std::min<uint64_t>(stat.comp_size, archive_bytes), monitor.limits());
  return std::make_unique<ZipMemberReader>(file, std::move(archive), std::move(opened_member), bound, share, monitor);
}

}  // namespace permafrost::data
