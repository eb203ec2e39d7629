#include "spec/checks.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/string_view.h"
#include "spec/job_spec.h"
#include "spec/policy.h"

namespace permafrost::spec {
namespace {

std::string ForSchedule(const TrainOptions& options, const char* accepted) {
  return absl::StrCat("is given for schedule ", AbslView(kScheduleNames.Name(options.optimizer.schedule)),
                      "; accepted: for ", accepted);
}

std::string ForWalks(const char* why) {
  return absl::StrCat("is given for node2vec, which ", why, "; accepted: without");
}

std::string ForProgram(const char* why) {
  return absl::StrCat("is given for a program, which ", why, "; accepted: without");
}

std::string ForAlgorithm(const TrainOptions& options, const char* accepted) {
  return absl::StrCat("is given for ", AbslView(kOptimizerNames.Name(options.optimizer.algorithm)), "; accepted: for ",
                      accepted);
}

// Checks the fields of a job that are not training options.
void CheckRows(const JobSpec& beside, std::string_view prefix, Violations& violations) {
  FieldChecker check(prefix, violations);
  RowCheck(check, nullptr).Visit(beside, beside);
}

}  // namespace

void FieldChecker::Add(std::string_view field, std::string_view description) {
  if (!told_.emplace(field).second) return;
  violations_.Add(absl::StrCat(prefix_, AbslView(field)), description);
}

bool FieldChecker::InRange(std::string_view field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return true;
  Add(field, absl::StrCat(value, " is outside ", low, "..", high));
  return false;
}

bool FieldChecker::IsPositive(std::string_view field, double value) {
  if (std::isfinite(value) && value > 0) return true;
  Add(field, absl::StrCat(value, " is not a finite number above 0"));
  return false;
}

bool FieldChecker::IsPart(std::string_view field, double value) {
  if (value >= 0 && value < 1) return true;
  Add(field, absl::StrCat(value, " is not a number of at least 0 and below 1"));
  return false;
}

bool FieldChecker::Fits(std::string_view field, int64_t value, const Accepts& accepts) {
  switch (accepts.kind) {
    case Accepts::Kind::kBetween:
      return InRange(field, value, accepts.low, accepts.high);
    case Accepts::Kind::kBetweenOr0:
      if (value == 0 || (value >= accepts.low && value <= accepts.high)) return true;
      Add(field, absl::StrCat(value, " is outside ", accepts.low, "..", accepts.high, ", or 0 ", accepts.zero));
      return false;
    case Accepts::Kind::kNotNegative:
      if (value >= 0) return true;
      Add(field, absl::StrCat(value, " is below 0"));
      return false;
    default:
      return true;
  }
}

bool FieldChecker::Fits(std::string_view field, double value, const Accepts& accepts) {
  switch (accepts.kind) {
    case Accepts::Kind::kBetween:
      // The comparisons are written so that they are false for NaN, which is thus refused.
      if (value >= static_cast<double>(accepts.low) && value <= static_cast<double>(accepts.high)) return true;
      Add(field, absl::StrCat(value, " is outside ", accepts.low, "..", accepts.high));
      return false;
    case Accepts::Kind::kPositive:
      return IsPositive(field, value);
    case Accepts::Kind::kPart:
      return IsPart(field, value);
    case Accepts::Kind::kNotNegative:
      if (std::isfinite(value) && value >= 0) return true;
      Add(field, absl::StrCat(value, " is not a finite number of at least 0"));
      return false;
    default:
      return true;
  }
}

bool Holds(Need need, const TrainOptions& options) {
  const OptimizerOptions& optimizer = options.optimizer;
  // A node2vec job on a set of graphs gets only the violation of its architecture.
  const bool walks = Walks(options) && options.model.level == ModelLevel::kNode;
  switch (need) {
    case Need::kNothing:
      return true;
    case Need::kSet:
      return options.model.level == ModelLevel::kGraph;
    case Need::kLargeGraph:
      return options.model.level == ModelLevel::kNode;
    case Need::kOwnModel:
      return !IsProgram(options);
    case Need::kLayers:
      return !walks && !IsProgram(options);
    case Need::kProducts:
    case Need::kFeatures:
    case Need::kLabels:
    case Need::kLinks:
    case Need::kNeighbors:
      return !walks;
    case Need::kSampling:
      return !walks && !options.nodes.fan_outs.empty();
    case Need::kDrawnLinks:
      return !options.links.given;
    case Need::kSgd:
      return optimizer.algorithm == OptimizerAlgorithm::kSgd;
    case Need::kWholeUpdates:
      return optimizer.algorithm != OptimizerAlgorithm::kSparseAdam;
    case Need::kWeightDecay:
      return optimizer.weight_decay > 0;
    case Need::kStepSchedule:
      return optimizer.schedule == Schedule::kStep;
    case Need::kFallingSchedule:
      return optimizer.schedule == Schedule::kStep || optimizer.schedule == Schedule::kPlateau;
    case Need::kPlateauSchedule:
      return optimizer.schedule == Schedule::kPlateau;
    case Need::kReplicas:
      return options.replicas > 1;
  }
  return true;
}

std::string RefusalOf(Need need, const TrainOptions& options) {
  switch (need) {
    case Need::kNothing:
      return "";
    case Need::kSet:
      return "is given for one large graph; accepted: for a set of graphs";
    case Need::kLargeGraph:
      return "is given for a set of graphs; accepted: for one large graph";
    case Need::kOwnModel:
      return ForProgram("has its own");
    case Need::kLayers:
      return IsProgram(options) ? ForProgram("has its own layers") : ForWalks("has no layers");
    case Need::kFeatures:
      return ForWalks("reads no features");
    case Need::kLabels:
      return ForWalks("reads no labels");
    case Need::kLinks:
      return ForWalks("learns from walks alone");
    case Need::kProducts:
      return ForWalks("has no products with weights");
    case Need::kNeighbors:
      return ForWalks("walks in place of drawing neighbours");
    case Need::kSampling:
      return Walks(options) ? RefusalOf(Need::kNeighbors, options)
                            : "is given without fan_outs: the whole graph is taken, nothing is drawn";
    case Need::kDrawnLinks:
      return "is given, and the dataset divides the links; accepted: with split drawn";
    case Need::kSgd:
      return ForAlgorithm(options, "sgd");
    case Need::kWholeUpdates:
      return ForAlgorithm(options, "adam, adamw, sgd");
    case Need::kWeightDecay:
      return "is given without weight_decay; accepted: with one above 0";
    case Need::kStepSchedule:
      return ForSchedule(options, "step");
    case Need::kFallingSchedule:
      return ForSchedule(options, "step and plateau");
    case Need::kPlateauSchedule:
      return ForSchedule(options, "plateau");
    case Need::kReplicas:
      return "is given for one daemon; accepted: with replicas of at least 2";
  }
  return "";
}

void Validate(const PolicyOptions& options, std::string_view prefix, Violations& violations) {
  FieldChecker check(prefix, violations);
  RowCheck(check, nullptr).Visit(options, options);
  CheckStrict(options, prefix, violations);
}

void CheckStrict(const PolicyOptions& options, std::string_view prefix, Violations& violations) {
  if (options.strict && KeepsNothing(options.policy)) {
    violations.Add(absl::StrCat(AbslView(prefix), "strict"),
                   absl::StrCat("policy ", AbslView(kPolicyNames.Name(options.policy)),
                                " keeps nothing, so that there is nothing to be strict about; accepted: strict under "
                                "always or freeze"));
  }
}

void Validate(const JobSpec& spec, Violations& violations) {
  constexpr std::string_view kPrefix = "spec.";
  Validate(spec.train, kPrefix, violations);
  Validate(spec.limits, kPrefix, violations);
  JobSpec beside = spec;
  beside.train = TrainOptions();
  CheckRows(beside, kPrefix, violations);
}

void ValidatePriority(int32_t priority, std::string_view prefix, Violations& violations) {
  JobSpec beside;
  beside.priority = priority;
  CheckRows(beside, prefix, violations);
}

void Validate(const JobLimits& limits, std::string_view prefix, Violations& violations) {
  if (limits.max_runtime > absl::ZeroDuration()) return;
  violations.Add(absl::StrCat(AbslView(prefix), "max_runtime"),
                 absl::StrCat(absl::FormatDuration(limits.max_runtime), " is not above 0"));
}

}  // namespace permafrost::spec
