#include "spec/needs.h"

#include "absl/strings/str_cat.h"
#include "base/string_view.h"

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

}  // namespace

bool Holds(Need need, const TrainOptions& options) {
  const OptimizerOptions& optimizer = options.optimizer;
  // node2vec on a set of graphs is refused for its architecture, and for nothing else.
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
  }
  return "";
}

}  // namespace permafrost::spec
