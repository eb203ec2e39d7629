#include "train/config.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/string_view.h"

namespace permafrost::train {
namespace {

// Violations of one message of a spec: field names are put after its prefix.
class FieldChecker {
 public:
  FieldChecker(std::string_view prefix, Violations& violations) : prefix_(prefix), violations_(violations) {}

  void InRange(std::string_view field, int64_t value, int64_t low, int64_t high) {
    if (value < low || value > high) Add(field, absl::StrCat(value, " is outside ", low, "..", high));
  }
  void Add(std::string_view field, std::string_view description) {
    violations_.Add(absl::StrCat(prefix_, AbslView(field)), description);
  }

 private:
  std::string prefix_;
  Violations& violations_;
};

}  // namespace

void Validate(const TrainOptions& options, std::string_view prefix, Violations& violations) {
  FieldChecker check(prefix, violations);
  if (options.dataset.empty()) {
    check.Add("dataset", "is required: the name of an imported dataset");
  } else {
    const absl::Status syntax = CheckIdSyntax(absl::StrCat(AbslView(prefix), "dataset"), options.dataset.value());
    for (const FieldViolation& violation : GetViolations(syntax))
      violations.Add(violation.field, violation.description);
  }
  check.InRange("model.hidden_channels", options.model.hidden_channels, 1, 4096);
  check.InRange("model.num_layers", options.model.num_layers, 1, 64);
  const double rate = options.optimizer.learning_rate;
  if (!std::isfinite(rate) || rate <= 0) {
    check.Add("optimizer.learning_rate", absl::StrCat(rate, " is not a finite number above 0"));
  }
  const double decay = options.optimizer.weight_decay;
  if (!std::isfinite(decay) || decay < 0) {
    check.Add("optimizer.weight_decay", absl::StrCat(decay, " is not a finite number of at least 0"));
  }
  const double dropout = options.model.dropout;
  if (!(dropout >= 0 && dropout < 1)) {
    check.Add("model.dropout", absl::StrCat(dropout, " is not a number of at least 0 and below 1"));
  }
  const double norm = options.optimizer.max_grad_norm;
  if (!std::isfinite(norm) || norm < 0) {
    check.Add("optimizer.max_grad_norm", absl::StrCat(norm, " is not a finite number of at least 0"));
  }
  if (options.optimizer.warmup_steps < 0) {
    check.Add("optimizer.warmup_steps", absl::StrCat(options.optimizer.warmup_steps, " is below 0"));
  }
  check.InRange("epochs", options.epochs, 1, 1'000'000);
  check.InRange("batch_size", options.batch_size, 1, 65'536);
  if (options.checkpoint.every_steps < 0) {
    check.Add("checkpoint.every_steps", absl::StrCat(options.checkpoint.every_steps, " is below 0"));
  }
  check.InRange("checkpoint.keep", options.checkpoint.keep, 1, 100);
  graphcache::Validate(options.graph_cache, absl::StrCat(AbslView(prefix), "graph_cache."), violations);
}

}  // namespace permafrost::train
