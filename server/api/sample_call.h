// SampleDataset: drawn on a thread of its own.
#pragma once

#include <memory>

#include "api/slow_calls.h"
#include "base/id.h"
#include "data/catalog/catalog.h"
#include "data/sampling/sample_query.h"
#include "grpcpp/support/server_callback.h"
#include "permafrost/v1/dataset.pb.h"

namespace permafrost::api {

// For the service's handler to return. Catalog and `response` outlive the call, as gRPC has it.
grpc::ServerUnaryReactor* StartSampleCall(data::Catalog& catalog, DatasetId dataset, data::SampleQuery query,
                                          std::unique_ptr<SlowCalls::Slot> slot, v1::SampleDatasetResponse* response);

}  // namespace permafrost::api
