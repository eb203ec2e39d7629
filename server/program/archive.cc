#include "program/archive.h"

#include <c10/util/Exception.h>
#include <caffe2/serialize/file_adapter.h>
#include <caffe2/serialize/inline_container.h>

#include <algorithm>
#include <cstring>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "base/text.h"
#include "program/libtorch.h"

namespace permafrost::program {
namespace {

using caffe2::serialize::PyTorchStreamReader;

constexpr std::string_view kModels = "models/";
constexpr std::string_view kJson = ".json";

class BytesAdapter : public caffe2::serialize::ReadAdapterInterface {
 public:
  explicit BytesAdapter(std::string_view bytes) : bytes_(bytes) {}
  size_t size() const override { return bytes_.size(); }
  size_t read(uint64_t place, void* into, size_t count, const char* /*what*/) const override {
    if (place >= bytes_.size()) return 0;
    const size_t read = std::min<size_t>(count, bytes_.size() - place);
    std::memcpy(into, bytes_.data() + place, read);
    return read;
  }

 private:
  std::string_view bytes_;
};

absl::Status CheckBytes(uint64_t bytes, const Limits& limits) {
  if (bytes <= static_cast<uint64_t>(limits.archive_bytes)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("archive: its ", bytes, " bytes are more than the ",
                                                 limits.archive_bytes, " that a program may have"));
}

}  // namespace

Archive::Archive(const Limits& limits, uint64_t bytes) : limits_(limits), bytes_(bytes) {}
Archive::Archive(Archive&&) noexcept = default;
Archive& Archive::operator=(Archive&&) noexcept = default;
Archive::~Archive() = default;

template <class MakeReader>
absl::Status Archive::Begin(const MakeReader& make) {
  absl::Status begun = CatchTorch("archive", [&] {
    reader_ = make();
    return absl::OkStatus();
  });
  // libtorch speaks of checkpoints and of its zip library.
  if (!absl::IsInvalidArgument(begun)) return begun;
  return absl::InvalidArgumentError(
      "archive: is no whole zip file; accepted: a .pt2 file of permafrost.export or torch.export");
}

absl::StatusOr<Archive> Archive::Open(const std::filesystem::path& path, const Limits& limits) {
  std::error_code error;
  const uintmax_t bytes = std::filesystem::file_size(path, error);
  if (error) return absl::NotFoundError(absl::StrCat(Quote(path.string()), ": ", error.message()));
  PF_RETURN_IF_ERROR(CheckBytes(bytes, limits));
  Archive archive(limits, bytes);
  PF_RETURN_IF_ERROR(archive.Begin([&] { return std::make_unique<PyTorchStreamReader>(path.string()); }));
  PF_RETURN_IF_ERROR(archive.Check());
  return archive;
}

absl::StatusOr<Archive> Archive::OfBytes(std::string_view bytes, const Limits& limits) {
  PF_RETURN_IF_ERROR(CheckBytes(bytes.size(), limits));
  Archive archive(limits, bytes.size());
  PF_RETURN_IF_ERROR(
      archive.Begin([&] { return std::make_unique<PyTorchStreamReader>(std::make_shared<BytesAdapter>(bytes)); }));
  PF_RETURN_IF_ERROR(archive.Check());
  return archive;
}

absl::Status Archive::Check() {
  PF_RETURN_IF_ERROR(CatchTorch("archive", [this] {
    const std::vector<std::string> records = reader_->getAllRecords();
    if (static_cast<int64_t>(records.size()) > limits_.records) {
      return absl::InvalidArgumentError(
          absl::StrCat("archive: its ", records.size(), " records are more than ", limits_.records));
    }
    for (const std::string& record : records) {
      if (!absl::StartsWith(record, {kModels.data(), kModels.size()}) || !absl::EndsWith(record, ".json")) continue;
      forms_.push_back(record.substr(kModels.size(), record.size() - kModels.size() - kJson.size()));
    }
    return absl::OkStatus();
  }));
  std::sort(forms_.begin(), forms_.end());
  if (forms_ != std::vector<std::string>{"model"} && forms_ != std::vector<std::string>{"eval", "train"}) {
    return absl::InvalidArgumentError(
        absl::StrCat("archive: models/: holds ", forms_.empty() ? "no program" : Quote(absl::StrJoin(forms_, ", ")),
                     ", where train.json and eval.json are accepted, or model.json alone"));
  }
  for (const auto& [record, wanted] : {std::pair("archive_format", "pt2"), std::pair("byteorder", "little")}) {
    if (!Has(record)) continue;
    PF_ASSIGN_OR_RETURN(const std::string text, ReadText(record));
    if (text != wanted) {
      return absl::InvalidArgumentError(
          absl::StrCat(record, ": ", Quote(text), ", where \"", wanted, "\" is accepted"));
    }
  }
  return absl::OkStatus();
}

bool Archive::Has(const std::string& record) const {
  return CatchTorch(record, [&] { return reader_->hasRecord(record) ? absl::OkStatus() : absl::NotFoundError(record); })
      .ok();
}

absl::StatusOr<int64_t> Archive::SizeOf(const std::string& record) const {
  int64_t size = 0;
  PF_RETURN_IF_ERROR(CatchTorch(Shorten(record), [&]() -> absl::Status {
    if (!reader_->hasRecord(record)) return absl::InvalidArgumentError("the archive has no such record");
    const size_t bytes = reader_->getRecordSize(record);
    if (bytes > static_cast<size_t>(limits_.tensor_bytes)) {
      return absl::InvalidArgumentError(absl::StrCat("its ", bytes, " bytes are more than ", limits_.tensor_bytes));
    }
    if (bytes > bytes_) {
      return absl::InvalidArgumentError(absl::StrCat("its ", bytes, " bytes are more than the archive's ", bytes_,
                                                     ", and no record may be compressed"));
    }
    size = static_cast<int64_t>(bytes);
    return absl::OkStatus();
  }));
  return size;
}

absl::Status Archive::Read(const std::string& record, void* into, int64_t bytes) const {
  return CatchTorch(Shorten(record), [&] {
    reader_->getRecord(record, into, static_cast<size_t>(bytes));
    return absl::OkStatus();
  });
}

absl::StatusOr<std::string> Archive::ReadText(const std::string& record) const {
  PF_ASSIGN_OR_RETURN(const int64_t bytes, SizeOf(record));
  if (bytes > limits_.json_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(Shorten(record), ": its ", bytes, " bytes are more than ", limits_.json_bytes));
  }
  std::string text(static_cast<size_t>(bytes), '\0');
  PF_RETURN_IF_ERROR(Read(record, text.data(), bytes));
  return text;
}

}  // namespace permafrost::program
