#include "api/convert_job_verbs.h"

#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "api/convert_job_life.h"
#include "api/convert_time.h"
#include "api/text.h"
#include "base/status.h"
#include "base/string_view.h"

namespace permafrost::api {
namespace {

constexpr std::string_view kLabelsPath = "labels", kPriorityPath = "spec.priority";
constexpr std::string_view kMaxRuntimePath = "spec.max_runtime", kDeadlinePath = "spec.deadline";

absl::Duration ReadMaxRuntime(const v1::Job& job, Violations& violations) {
  if (!job.spec().has_max_runtime()) return absl::InfiniteDuration();
  return DurationFromWire(job.spec().max_runtime(), "job.spec.max_runtime", violations);
}

absl::Time ReadDeadline(const v1::Job& job, Violations& violations) {
  if (!job.spec().has_deadline()) return absl::InfiniteFuture();
  return TimeFromWire(job.spec().deadline(), "job.spec.deadline", violations);
}

// False: the path is none.
bool ReadPath(std::string_view path, const v1::Job& job, jobs::JobUpdate& update, Violations& violations) {
  if (path == kLabelsPath) {
    update.labels = LabelsFromWire(job.labels());
  } else if (path == kPriorityPath) {
    update.priority = job.spec().priority();
  } else if (path == kMaxRuntimePath) {
    update.max_runtime = ReadMaxRuntime(job, violations);
  } else if (path == kDeadlinePath) {
    update.deadline = ReadDeadline(job, violations);
  } else if (path.starts_with(kLabelsPath) && path.substr(kLabelsPath.size()).starts_with('.')) {
    const std::string key(path.substr(kLabelsPath.size() + 1));
    if (!jobs::IsLabelKey(key)) return false;
    const auto label = job.labels().find(key);
    auto& change = update.label_changes[key];
    if (label != job.labels().end()) change = label->second;
  } else {
    return false;
  }
  return true;
}

}  // namespace

jobs::Labels LabelsFromWire(const google::protobuf::Map<std::string, std::string>& wire) {
  return {wire.begin(), wire.end()};
}

absl::StatusOr<jobs::JobUpdate> UpdateFromWire(const v1::UpdateJobRequest& wire) {
  jobs::JobUpdate update;
  update.etag = wire.job().etag();
  Violations violations;
  for (int i = 0; i < wire.update_mask().paths_size(); ++i) {
    const std::string& path = wire.update_mask().paths(i);
    if (ReadPath(path, wire.job(), update, violations)) continue;
    violations.Add(absl::StrCat("update_mask.paths[", i, "]"),
                   absl::StrCat("\"", absl::CHexEscape(path.substr(0, 96)),
                                "\" cannot be updated; accepted: labels, labels.KEY, spec.priority, spec.max_runtime, "
                                "spec.deadline"));
  }
  if (wire.update_mask().paths().empty()) {
    if (!wire.job().labels().empty()) update.labels = LabelsFromWire(wire.job().labels());
    if (wire.job().spec().priority() != 0) update.priority = wire.job().spec().priority();
    if (wire.job().spec().has_max_runtime()) update.max_runtime = ReadMaxRuntime(wire.job(), violations);
    if (wire.job().spec().has_deadline()) update.deadline = ReadDeadline(wire.job(), violations);
  }
  PF_RETURN_IF_ERROR(violations.ToStatus());
  return update;
}

v1::Checkpoint CheckpointToWire(const train::CheckpointInfo& info) {
  v1::Checkpoint wire;
  wire.set_step(info.step);
  wire.set_state(info.damage.empty() ? v1::Checkpoint::STATE_COMPLETE : v1::Checkpoint::STATE_DAMAGED);
  // After an epoch's last step `epochs_done` counts it only once it is evaluated.
  wire.set_epoch(info.batch > 0 || info.epochs_done == 0 ? info.epochs_done + 1 : info.epochs_done);
  wire.set_batch(info.batch);
  wire.set_best_epoch(info.best_epoch);
  SetTime(info.time, [&wire] { return wire.mutable_create_time(); });
  wire.set_total_bytes(static_cast<int64_t>(info.bytes));
  wire.set_error(ValidUtf8(info.damage));
  return wire;
}

}  // namespace permafrost::api
