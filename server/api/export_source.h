// Source of ExportJob: a file in pieces.
// Threads: as StreamSource.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "api/server_stream.h"
#include "base/file.h"
#include "base/hash.h"
#include "permafrost/v1/job.pb.h"

namespace permafrost::api {

// The file as it was when opened, even if the job replaces it meanwhile. It is read, not mapped: an export that nobody
// reads holds a descriptor and one piece, and none of the mappings that datasets need.
class ExportSource final : public StreamSource<v1::ExportJobResponse> {
 public:
  // Errors: those of opening the file.
  static absl::StatusOr<std::unique_ptr<ExportSource>> Open(const std::filesystem::path& path);
  // Errors: DataLoss where the file was cut short or written to since Open; the system's where it cannot be read.
  absl::StatusOr<Pull> Next(v1::ExportJobResponse& response) override;

 private:
  ExportSource(std::filesystem::path path, Descriptor file, uint64_t size, int64_t modified)
      : path_(std::move(path)), file_(std::move(file)), size_(size), modified_(modified) {}
  absl::Status Read(std::string& piece) const;
  absl::Status CheckUnchanged() const;

  const std::filesystem::path path_;
  const Descriptor file_;
  const uint64_t size_;     // bytes
  const int64_t modified_;  // nanoseconds
  uint64_t offset_ = 0;
  StreamHash hash_;
};

}  // namespace permafrost::api
