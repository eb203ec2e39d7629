// Metrics and their values between the wire and the domain.
// Threads: pure functions.
#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"
#include "google/protobuf/repeated_field.h"
#include "permafrost/v1/job.pb.h"
#include "spec/loss.h"

namespace permafrost::api {

v1::Metric MetricToWire(spec::Metric metric);

// Adds violations of `field` and its elements.
std::vector<spec::Metric> MetricsFromWire(const google::protobuf::RepeatedField<int>& wire, std::string_view field,
                                          Violations& violations);

// One value of each metric; where there are none (of a job that an older version ran), `first` of the first metric.
void MetricsToWire(const std::vector<spec::Metric>& metrics, const std::vector<double>& values, double first,
                   google::protobuf::RepeatedPtrField<v1::MetricValue>& wire);

}  // namespace permafrost::api
