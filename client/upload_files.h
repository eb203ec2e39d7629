// The files of a source, as UploadDataset declares and sends them.
// Threads: one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "permafrost/v1/dataset.pb.h"

namespace permafrost::client {

class UploadFiles {
 public:
  // A file, or all files of a folder by their paths in it, but for those with a name that begins with a dot. Reads each
  // once for its checksum. `id` empty: made from names and checksums. Errors: NotFound, InvalidArgument for a folder
  // without files; those of reading.
  static absl::StatusOr<UploadFiles> Find(const std::filesystem::path& source, const std::string& id);

  // With a request_id.
  const v1::UploadStart& start() const { return start_; }
  int64_t bytes() const { return bytes_; }
  // Hands all that `received` does not have to `send`, in order, until that returns false. Errors: of reading.
  absl::Status ReadRest(const v1::Upload& received, const std::function<bool(const v1::UploadChunk&)>& send) const;

 private:
  std::vector<std::filesystem::path> paths_;  // by place in the start
  v1::UploadStart start_;
  int64_t bytes_ = 0;
};

}  // namespace permafrost::client
