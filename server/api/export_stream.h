// Source of ExportJob: a file in pieces.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "api/stream.h"
#include "base/hash.h"
#include "base/mapped_file.h"
#include "permafrost/v1/job.pb.h"

namespace permafrost::api {

// The file as it was when opened, even if the job replaces it meanwhile.
class ExportStream final : public StreamSource<v1::ExportJobResponse> {
 public:
  // Errors: those of opening the file.
  static absl::StatusOr<std::unique_ptr<ExportStream>> Open(const std::filesystem::path& path);
  absl::StatusOr<Pull> Next(v1::ExportJobResponse& response) override;

 private:
  explicit ExportStream(std::unique_ptr<MappedFile> file) : file_(std::move(file)) {}
  const std::unique_ptr<MappedFile> file_;
  uint64_t offset_ = 0;
  StreamHash hash_;
};

}  // namespace permafrost::api
