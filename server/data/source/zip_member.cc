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
  ZipMemberReader(const SourceFile& file, std::unique_ptr<zip_t, CloseArchive> archive,
                  std::unique_ptr<zip_file_t, CloseMember> member, double packed_share, ImportMonitor& monitor)
      : archive_name_(file.name),
        most_unpacked_(file.most_unpacked),
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
    if (most_unpacked_ != 0 && static_cast<uint64_t>(unpacked_) > most_unpacked_) {
      return absl::InvalidArgumentError(
          absl::StrCat("unpacks to more than ", most_unpacked_, " bytes, too many for its packed size"));
    }
    const auto packed = static_cast<int64_t>(static_cast<double>(unpacked_) * packed_share_);
    PF_RETURN_IF_ERROR(monitor_.Advance(archive_name_, packed - std::exchange(told_, packed)));
    return static_cast<std::size_t>(n);
  }
  void Rewind() override { monitor_.Advance(archive_name_, -std::exchange(told_, 0)).IgnoreError(); }

 private:
  std::string archive_name_;
  uint64_t most_unpacked_;  // 0: any number
  std::unique_ptr<zip_t, CloseArchive> archive_;
  std::unique_ptr<zip_file_t, CloseMember> member_;
  double packed_share_;
  ImportMonitor& monitor_;
  int64_t unpacked_ = 0, told_ = 0;
};

absl::StatusOr<std::unique_ptr<zip_t, CloseArchive>> OpenArchive(const SourceFile& file, const ImportMonitor& monitor) {
  PF_ASSIGN_OR_RETURN(Descriptor opened, OpenSource(file, monitor));
  int code = 0;
  std::unique_ptr<zip_t, CloseArchive> archive(zip_fdopen(opened.get(), 0, &code));
  if (archive == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(file.name, ": is no ZIP archive: ", Message(code)));
  }
  opened.Release();  // the archive's by now
  return archive;
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
    entries.push_back({.name = stat.name, .packed = stat.comp_size, .unpacked = stat.size});
  }
  return entries;
}

absl::StatusOr<std::unique_ptr<SourceReader>> OpenZipMember(const SourceFile& file, const std::string& member,
                                                            ImportMonitor& monitor) {
  PF_ASSIGN_OR_RETURN(auto archive, OpenArchive(file, monitor));
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
  return std::make_unique<ZipMemberReader>(file, std::move(archive), std::move(opened_member), share, monitor);
}

}  // namespace permafrost::data
