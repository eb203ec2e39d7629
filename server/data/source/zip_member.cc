#include "data/source/zip_member.h"

#include <unistd.h>
#include <zip.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace permafrost::data {
namespace {

struct CloseArchive {
  void operator()(zip_t* archive) const { zip_discard(archive); }
};
struct CloseMember {
  void operator()(zip_file_t* member) const { zip_fclose(member); }
};

std::string Message(int code) {
  zip_error_t error;
  zip_error_init_with_code(&error, code);
  std::string message = zip_error_strerror(&error);
  zip_error_fini(&error);
  return message;
}

class ZipMemberReader final : public SourceReader {
 public:
  ZipMemberReader(std::string archive_name, std::unique_ptr<zip_t, CloseArchive> archive,
                  std::unique_ptr<zip_file_t, CloseMember> member, double packed_share, ImportMonitor& monitor)
      : archive_name_(std::move(archive_name)),
        archive_(std::move(archive)),
        member_(std::move(member)),
        packed_share_(packed_share),
        monitor_(monitor) {}

  absl::StatusOr<std::size_t> Read(char* out, std::size_t capacity) override {
    const zip_int64_t n = zip_fread(member_.get(), out, capacity);
    if (n < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("corrupt zip: ", zip_error_strerror(zip_file_get_error(member_.get()))));
    }
    unpacked_ += n;
    const auto packed = static_cast<int64_t>(static_cast<double>(unpacked_) * packed_share_);
    PF_RETURN_IF_ERROR(monitor_.Advance(archive_name_, packed - std::exchange(told_, packed)));
    return static_cast<std::size_t>(n);
  }
  void Rewind() override { monitor_.Advance(archive_name_, -std::exchange(told_, 0)).IgnoreError(); }

 private:
  std::string archive_name_;
  std::unique_ptr<zip_t, CloseArchive> archive_;
  std::unique_ptr<zip_file_t, CloseMember> member_;
  double packed_share_;
  ImportMonitor& monitor_;
  int64_t unpacked_ = 0, told_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SourceReader>> OpenZipMember(const SourceFile& file, const std::string& member,
                                                            ImportMonitor& monitor) {
  PF_ASSIGN_OR_RETURN(Descriptor opened, OpenSource(file, monitor));
  int code = 0;
  std::unique_ptr<zip_t, CloseArchive> archive(zip_fdopen(opened.get(), 0, &code));
  if (archive == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(file.name, ": is no ZIP archive: ", Message(code)));
  }
  opened.Release();  // the archive's by now
  const zip_int64_t index = zip_name_locate(archive.get(), member.c_str(), 0);
  if (index < 0) return absl::NotFoundError(absl::StrCat(file.name, ": has no member ", member));
  zip_stat_t stat;
  zip_stat_init(&stat);
  const auto place = static_cast<zip_uint64_t>(index);
  std::unique_ptr<zip_file_t, CloseMember> opened_member(
      zip_stat_index(archive.get(), place, 0, &stat) == 0 ? zip_fopen_index(archive.get(), place, 0) : nullptr);
  if (opened_member == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        file.name, ": ", member, ": cannot be unpacked: ", zip_error_strerror(zip_get_error(archive.get()))));
  }
  const double share = stat.size > 0 ? static_cast<double>(stat.comp_size) / static_cast<double>(stat.size) : 0;
  return std::make_unique<ZipMemberReader>(file.name, std::move(archive), std::move(opened_member), share, monitor);
}

}  // namespace permafrost::data
