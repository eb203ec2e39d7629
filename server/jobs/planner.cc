#include "jobs/planner.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace permafrost::jobs {

absl::StatusOr<graphcache::CachePlan> Planner::Plan(const spec::JobSpec& spec, bool measure,
                                                    const std::function<bool()>& wanted) {
  absl::StatusOr<graphcache::CachePlan> plan = TryPlan(spec, measure, wanted);
  return absl::IsCancelled(plan.status()) ? StoppedError() : std::move(plan);
}

bool Planner::KeepGoing(bool on_device, const std::function<bool()>& wanted) {
  if (on_device) device_.activity().Move();
  return !book_.draining() && wanted();
}

absl::Status Planner::StoppedError() const {
  return book_.draining() ? DrainingError() : absl::CancelledError("the caller waits for it no more");
}

absl::StatusOr<data::OpenedDataset> Planner::Open(const spec::JobSpec& spec, spec::TrainOptions& options) {
  PF_ASSIGN_OR_RETURN(options, admission_.Check(spec));
  absl::StatusOr<data::OpenedDataset> dataset = catalog_.Open(spec.train.dataset);
  if (dataset.ok()) return dataset;
  return Annotate(dataset.status(), absl::StrCat("cannot open dataset ", spec.train.dataset.value()));
}

absl::StatusOr<graphcache::Census> Planner::TakeCensus(const spec::JobSpec& spec, graphcache::TorchRelease release,
                                                       const std::function<bool()>& wanted) {
  train::CensusRequest request{.options = {}, .dataset = {}, .release = release};
  PF_ASSIGN_OR_RETURN(request.dataset, Open(spec, request.options));
  std::optional<absl::StatusOr<graphcache::Census>> census;
  const bool on_device = runner_.device() == DeviceKind::kMps;
  const auto take = [&] {
    census = runner_.TakeCensus(request, [&] { return KeepGoing(on_device, wanted); });
    return census->status();
  };
  if (on_device) {
    // There it runs on the device itself, which has one thread.
    if (!device_.RunNowIfIdle(take)) {
      return absl::UnavailableError(
          "the census runs steps on mps, and the device is not idle: try again when no job runs");
    }
  } else {
    take().IgnoreError();  // told below
  }
  return absl::IsCancelled(census->status()) ? StoppedError() : *std::move(census);
}

absl::StatusOr<graphcache::CachePlan> Planner::TryPlan(const spec::JobSpec& spec, bool measure,
                                                       const std::function<bool()>& wanted) {
  train::PlanRequest request{.options = {}, .dataset = {}, .measure = measure};
  PF_ASSIGN_OR_RETURN(request.dataset, Open(spec, request.options));
  if (measure) {
    std::optional<absl::StatusOr<graphcache::CachePlan>> plan;
    const auto keep_going = [&] { return KeepGoing(/*on_device=*/true, wanted); };
    const auto make = [&] {
      plan = runner_.PlanCache(request, keep_going);
      return plan->status();
    };
    if (device_.RunNowIfIdle(make)) return *std::move(plan);
  }
  request.measure = false;
  PF_ASSIGN_OR_RETURN(graphcache::CachePlan plan,
                      runner_.PlanCache(request, [&] { return KeepGoing(/*on_device=*/false, wanted); }));
  plan.no_costs_reason = measure ? "the device is not idle: a job runs, or none is taken yet" : "it was not asked for";
  return plan;
}

}  // namespace permafrost::jobs
