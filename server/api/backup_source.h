// Source of Backup: how far it is, and what came of it.
// Threads: as StreamSource; the backup runs on a thread of its own, which ends before the source does.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "api/make_backup.h"
#include "api/server_stream.h"
#include "api/stream_work.h"
#include "backup/backup.h"
#include "base/monotonic.h"
#include "jobs/request_log.h"
#include "permafrost/v1/server.pb.h"

namespace permafrost::api {

class BackupSource final : public StreamSource<v1::BackupResponse> {
 public:
  // hub, key: as StreamWork. Borrows the log.
  BackupSource(MakeBackup make, jobs::RequestLog& requests, const v1::BackupRequest& request, ChangeHub& hub,
               std::string key);

  absl::StatusOr<Pull> Next(v1::BackupResponse& response) override;
  std::unique_ptr<ChangeHub::Subscription> Subscribe(ChangeHub::Listener listener) override {
    return work_.Start(std::move(listener));
  }

 private:
  backup::Summary summary_;  // written by the work, read once it has ended
  std::optional<int64_t> sent_;
  std::optional<Stopwatch> since_sent_;
  StreamWork work_;  // last: its thread writes what is above
};

}  // namespace permafrost::api
