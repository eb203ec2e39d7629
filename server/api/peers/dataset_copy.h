// Copies a dataset's store to another server that lacks it. Uses the public calls of DatasetService.
#pragma once

#include <grpcpp/channel.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "train/peers.h"

namespace permafrost::api {

// Remembers the checksum of the last file that it sent, because computing a checksum reads the whole file.
// Threads: all methods are thread-safe. Each copy runs on its own thread.
class DatasetCopier {
 public:
  // `token` is explained in PeerOptions.
  explicit DatasetCopier(std::string token) : token_(std::move(token)) {}

  // Returns Ok once the peer has the request's dataset READY under the same name. Uploads request.dataset_file and
  // has the peer import it. Continues an upload that an earlier call began. If another server is sending the same
  // dataset, waits up to ten seconds for it. The job's log reports that bytes are sent, and how long the copy took.
  // Errors, without `address` in the message: FailedPrecondition if the peer has other data under that name or could
  // not import the copy; Unavailable if the peer has gone, or made no progress for ten seconds; other errors that the
  // peer returns; errors from reading the file; Cancelled once request.keep_going returns false. keep_going is called
  // on the calling thread.
  absl::Status Copy(const train::RecruitRequest& request, const std::string& address,
                    const std::shared_ptr<grpc::Channel>& channel);

 private:
  class Transfer;
  // Identifies the version of a file, and holds its checksum.
  struct HashedFile {
    std::filesystem::path path;
    int64_t bytes = 0, modified = 0;
    std::string xxh3;
  };
  // If the remembered checksum belongs to this file, and the file has not changed since, returns the checksum.
  // Otherwise returns an empty text.
  std::string Recall(const HashedFile& file);
  void Remember(const HashedFile& file);

  const std::string token_;
  absl::Mutex mu_;
  HashedFile last_ ABSL_GUARDED_BY(mu_);
};

}  // namespace permafrost::api
