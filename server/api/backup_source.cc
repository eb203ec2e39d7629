#include "api/backup_source.h"

#include <utility>

#include "api/request_key.h"
#include "api/resource_name.h"
#include "api/text.h"

namespace permafrost::api {
namespace {

constexpr absl::Duration kBackupInterval = absl::Milliseconds(250);

}  // namespace

BackupSource::BackupSource(MakeBackup make, jobs::RequestLog& requests, const v1::BackupRequest& request,
                           ChangeHub& hub, std::string key)
    : work_("the backup", hub, std::move(key),
            [this, &requests, request, make = std::move(make)](const StreamWork::OnProgress& on_progress) {
              return requests.Once(KeyOf(request), "", [&](const jobs::Earlier& earlier) {
                absl::StatusOr<backup::Summary> made =
                    make({.directory = request.directory(),
                          .with_datasets = request.with_datasets(),
                          .request_id = request.request_id(),
                          .answered = earlier.seen == jobs::Earlier::Seen::kAnswered},
                         on_progress);
                if (!made.ok()) return made.status();
                summary_ = *std::move(made);
                return absl::OkStatus();
              });
            }) {}

absl::StatusOr<Pull> BackupSource::Next(v1::BackupResponse& response) {
  const StreamWork::State state = work_.Read();
  if (state.outcome && !state.outcome->ok()) return *state.outcome;
  if (!state.outcome) {
    if (state.total == 0 || sent_ == state.done || (since_sent_ && since_sent_->Elapsed() < kBackupInterval)) {
      return Pull::kWait;  // A notice comes soon: of more bytes, or of the end.
    }
    sent_ = state.done;
    since_sent_.emplace();
  }
  response.set_bytes_done(state.outcome ? state.total : state.done);
  response.set_bytes_total(state.total);
  if (!state.outcome) return Pull::kMore;
  v1::BackupSummary& summary = *response.mutable_summary();
  summary.set_path(ValidUtf8(summary_.path.string()));
  summary.set_files(summary_.files);
  summary.set_bytes(summary_.bytes);
  summary.set_jobs(summary_.jobs);
  for (const std::string& dataset : summary_.datasets_wanted) summary.add_datasets_wanted("datasets/" + dataset);
  for (const JobId& job : summary_.jobs_anew) summary.add_jobs_anew(FormatJobName(job));
  for (const std::string& dataset : summary_.imports) summary.add_imports("datasets/" + dataset);
  return Pull::kLast;
}

}  // namespace permafrost::api
