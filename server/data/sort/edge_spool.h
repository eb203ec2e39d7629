// Edges on disk in the order they came, to be read once or more.
// Threads: one at a time. Memory: a piece. The file has no name, and so is gone whenever the process is.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "base/stop.h"
#include "data/sort/nameless_file.h"

namespace permafrost::data {

template <class Record>
class EdgeSpool {
 public:
  static absl::StatusOr<EdgeSpool> Create(const std::filesystem::path& directory, std::stop_token stop) {
    PF_ASSIGN_OR_RETURN(NamelessFile file, NamelessFile::Create(directory));
    return EdgeSpool(std::move(file), std::move(stop));
  }

  // Errors: of the disk; Cancelled.
  absl::Status Append(std::span<const Record> edges) { return file_.Append(std::as_bytes(edges), stop_); }

  // Calls take(std::span<Record>) with all of them, some at a time, until it fails.
  template <class Take>
  absl::Status ForEach(const Take& take) const {
    constexpr uint64_t kAtOnce = uint64_t{1} << 16;
    std::vector<Record> edges;
    for (uint64_t at = 0; at < file_.size(); at += edges.size() * sizeof(Record)) {
      PF_RETURN_IF_ERROR(CheckStop(stop_));
      edges.resize(std::min(kAtOnce, (file_.size() - at) / sizeof(Record)));
      PF_RETURN_IF_ERROR(file_.Read(at, std::as_writable_bytes(std::span(edges))));
      PF_RETURN_IF_ERROR(take(std::span(edges)));
    }
    return absl::OkStatus();
  }

 private:
  EdgeSpool(NamelessFile file, std::stop_token stop) : file_(std::move(file)), stop_(std::move(stop)) {}
  NamelessFile file_;
  std::stop_token stop_;
};

}  // namespace permafrost::data
