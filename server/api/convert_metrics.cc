#include "api/convert_metrics.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "api/wire_enum.h"
#include "base/string_view.h"

namespace permafrost::api {
namespace {

using Metrics = WireEnum<v1::Metric, spec::kMetricNames>;

}  // namespace

v1::Metric MetricToWire(spec::Metric metric) { return Metrics::ToWire(metric); }

std::vector<spec::Metric> MetricsFromWire(const google::protobuf::RepeatedField<int>& wire, std::string_view field,
                                          Violations& violations) {
  std::vector<spec::Metric> metrics;
  // A request has room for a million of them.
  if (static_cast<std::size_t>(wire.size()) > Metrics::size()) {
    violations.Add(field, absl::StrCat("has ", wire.size(), " entries; accepted: at most the ", Metrics::size(),
                                       " metrics there are, each once"));
    return metrics;
  }
  for (int i = 0; i < wire.size(); ++i) {
    if (const auto metric = Metrics::FromWire(wire[i])) {
      metrics.push_back(*metric);
    } else {
      violations.Add(absl::StrCat(AbslView(field), "[", i, "]"),
                     absl::StrCat(wire[i], " is no metric; accepted: ", Metrics::Accepted()));
    }
  }
  return metrics;
}

void MetricsToWire(const std::vector<spec::Metric>& metrics, const std::vector<double>& values, double first,
                   google::protobuf::RepeatedPtrField<v1::MetricValue>& wire) {
  for (size_t i = 0; i < std::max<size_t>(1, std::min(metrics.size(), values.size())); ++i) {
    v1::MetricValue& value = *wire.Add();
    value.set_metric(Metrics::ToWire(metrics[i]));
    value.set_value(values.empty() ? first : values[i]);
  }
}

}  // namespace permafrost::api
