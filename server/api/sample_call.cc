#include "api/sample_call.h"

#include <thread>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "api/convert_sample.h"
#include "api/status.h"
#include "base/status.h"

namespace permafrost::api {
namespace {

// The cores belong to the job that trains.
constexpr int kThreads = 1;

absl::StatusOr<v1::SampleDatasetResponse> Draw(const data::Catalog& catalog, const DatasetId& id,
                                               const data::SampleQuery& query) {
  PF_ASSIGN_OR_RETURN(const data::OpenedDataset opened, catalog.Open(id));
  const auto* graph = std::get_if<std::shared_ptr<const data::Graph>>(&opened);
  if (graph == nullptr) {
    return WithReason(absl::FailedPreconditionError(absl::StrCat(
                          "dataset ", id.value(), " holds many small graphs; samples are drawn of one large graph")),
                      "DATASET_IS_GRAPH_SET", {{"dataset", id.value()}});
  }
  const absl::StatusOr<data::SampleAnswer> answer = data::Sample(**graph, query, kThreads);
  if (!answer.ok()) return SampleErrorToWire(query, answer.status());
  return SampleAnswerToWire(*answer);
}

// Threads: the one it starts, which calls Finish; OnDone, on gRPC's, joins it. Owns itself: deleted in OnDone.
class SampleCall final : public grpc::ServerUnaryReactor {
 public:
  SampleCall(data::Catalog& catalog, DatasetId dataset, data::SampleQuery query, std::unique_ptr<SlowCalls::Slot> slot,
             v1::SampleDatasetResponse* response)
      : slot_(std::move(slot)),
        thread_([this, &catalog, response, dataset = std::move(dataset), query = std::move(query)] {
          absl::StatusOr<v1::SampleDatasetResponse> drawn = WithoutThrowing(
              [&]() -> absl::StatusOr<v1::SampleDatasetResponse> { return Draw(catalog, dataset, query); });
          const grpc::Status status = ToGrpcStatus(drawn.status());
          if (drawn.ok()) *response = *std::move(drawn);
          Finish(status);
        }) {}

  void OnDone() override {
    thread_.join();
    delete this;
  }

 private:
  const std::unique_ptr<SlowCalls::Slot> slot_;
  std::thread thread_;
};

}  // namespace

grpc::ServerUnaryReactor* StartSampleCall(data::Catalog& catalog, DatasetId dataset, data::SampleQuery query,
                                          std::unique_ptr<SlowCalls::Slot> slot, v1::SampleDatasetResponse* response) {
  return new SampleCall(catalog, std::move(dataset), std::move(query), std::move(slot), response);
}

}  // namespace permafrost::api
