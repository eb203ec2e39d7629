// The records of a `.pt2` archive that torch.export wrote, and the limits within which it is read. Nothing in it is
// executed or unpickled.
// Threads: one thread at a time. An archive of bytes borrows them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace caffe2::serialize {
class PyTorchStreamReader;
}

namespace permafrost::program {

// The bounds of an archive and of what is decoded from it.
struct Limits {
  // Bytes of the archive, and of all tensors in it.
  int64_t archive_bytes = int64_t{16} << 30;
  int64_t tensor_bytes = int64_t{16} << 30;
  // Bytes of one JSON record. The largest of 15 exported modules has 0.5 MiB.
  int64_t json_bytes = int64_t{64} << 20;
  // Lists and objects within each other. A region within another adds seven.
  int64_t json_depth = 200;
  int64_t records = 100'000;
  // Nodes of a form, those of its regions included.
  int64_t nodes = 100'000;
  // Regions (autocast, no_grad) within regions.
  int64_t nested_regions = 8;
  int64_t dimensions = 16;
};

class Archive {
 public:
  // Errors: InvalidArgument for what is no archive of this kind, or is beyond the limits; NotFound where no file is.
  static absl::StatusOr<Archive> Open(const std::filesystem::path& path, const Limits& limits);
  static absl::StatusOr<Archive> OfBytes(std::string_view bytes, const Limits& limits);
  Archive(Archive&&) noexcept;
  Archive& operator=(Archive&&) noexcept;
  ~Archive();

  // Names of the forms: "train" and "eval", or "model".
  const std::vector<std::string>& forms() const { return forms_; }
  // The size of the whole archive.
  int64_t bytes() const { return static_cast<int64_t>(bytes_); }
  bool Has(const std::string& record) const;
  // A record of at most Limits::json_bytes.
  absl::StatusOr<std::string> ReadText(const std::string& record) const;
  // Bytes that the record has, which are no more than the archive's: torch.export compresses nothing.
  absl::StatusOr<int64_t> SizeOf(const std::string& record) const;
  // Writes the whole record to `into`, which has room for the `bytes` that SizeOf told.
  absl::Status Read(const std::string& record, void* into, int64_t bytes) const;

 private:
  Archive(const Limits& limits, uint64_t bytes);
  // Makes the reader; the error says in our words that it cannot be made.
  template <class MakeReader>
  absl::Status Begin(const MakeReader& make);
  absl::Status Check();

  Limits limits_;
  uint64_t bytes_;
  std::unique_ptr<caffe2::serialize::PyTorchStreamReader> reader_;
  std::vector<std::string> forms_;
};

}  // namespace permafrost::program
