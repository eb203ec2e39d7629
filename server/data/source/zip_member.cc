#include "data/source/zip_member.h"

#include <unistd.h>
#include <zip.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "data/source/source_file.h"

namespace permafrost::data {
namespace {

struct CloseArchive {
  void operator()(zip_t* archive) const { zip_discard(archive); }
};
struct CloseMember {
  void operator()(zip_file_t* member) const { zip_fclose(member); }
};

// The errno of an error that is the machine's; 0: it is the archive's, which may say that something lies anywhere.
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
    // A file is no terminal, which stdio asks at its first read.
    if (errno != 0 && errno != ENOTTY) met_ = errno;
    if (n < 0) {
      zip_error_t* const error = zip_file_get_error(member_.get());
      // libzip tells a read that failed as an archive that ends too early, which sets no errno; and where there were
      // bytes to give before, not until the next call.
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
  int met_ = 0;  // the errno of a call of libzip
};

// `bytes`: of the whole archive, where asked for.
absl::StatusOr<std::unique_ptr<zip_t, CloseArchive>> OpenArchive(const SourceFile& file, const ImportMonitor& monitor,
                                                                 uint64_t* bytes = nullptr) {
  PF_ASSIGN_OR_RETURN(Descriptor opened, OpenSource(file, monitor));
  if (bytes != nullptr) *bytes = BytesOf(opened);
  int code = 0;
  std::unique_ptr<zip_t, CloseArchive> archive(zip_fdopen(opened.get(), 0, &code));
  if (archive == nullptr) {
    zip_error_t error;
    zip_error_init_with_code(&error, code);  // reads errno
    const int failed = MachineErrno(&error);
    const std::string message = zip_error_strerror(&error);
    zip_error_fini(&error);
    if (failed != 0) return SystemError(failed, file.name, "open");
    return absl::InvalidArgumentError(absl::StrCat(file.name, ": is no ZIP archive: ", message));
  }
  opened.Release();  // the archive's by now
  return archive;
}

// Nothing is unpacked to disk; but who packs such a name means to write elsewhere, and the rest is worth as little.
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
  // The archive may say anything of its members.
  const UnpackBound bound(std::min<uint64_t>(stat.comp_size, archive_bytes), monitor.limits());
  return std::make_unique<ZipMemberReader>(file, std::move(archive), std::move(opened_member), bound, share, monitor);
}

}  // namespace permafrost::data
