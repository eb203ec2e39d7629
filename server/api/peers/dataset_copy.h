// Sends a dataset's store to another server that lacks it, by the calls of DatasetService that clients use too.
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

// Remembers the checksum of the file that was sent last, since computing it reads the whole file.
// Threads: all methods are safe anywhere. Each copy runs on a thread of its own.
class DatasetCopier {
 public:
  // token: as PeerOptions::token.
  explicit DatasetCopier(std::string token) : token_(std::move(token)) {}

  // Returns once the peer holds the request's dataset, READY and under the same name. It uploads request.dataset_file
  // and has it imported; an upload that an earlier call began goes on where it stopped. If another server sends the
  // same dataset, it waits for that one, for ten seconds. The job's log hears when bytes are sent, and how long it
  // took. Errors, without `address`: FailedPrecondition if the peer has other data under that name or could not import
  // the copy; Unavailable once the peer has gone, or did not move on for ten seconds; any other that the peer answers;
  // those of reading the file; Cancelled once request.keep_going returns false, which is asked on the calling thread.
  absl::Status Copy(const train::RecruitRequest& request, const std::string& address,
                    const std::shared_ptr<grpc::Channel>& channel);

 private:
  class Transfer;
  // A file as it was when it was read.
  struct HashedFile {
    std::filesystem::path path;
    int64_t bytes = 0, modified = 0;
    std::string xxh3;
  };
  // Returns the checksum of the file if it was the last one that was read, and has not changed; else empty.
  std::string Recall(const HashedFile& file);
  void Remember(const HashedFile& file);

  const std::string token_;
  absl::Mutex mu_;
  HashedFile last_ ABSL_GUARDED_BY(mu_);
};

}  // namespace permafrost::api
