#include "client/spec_view.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/format.h"
#include "client/job_view.h"
#include "permafrost/v1/enum_text.h"
#include "spec/model.h"
#include "spec/sampling.h"

namespace permafrost::client {
namespace {

std::string FanOutText(const google::protobuf::RepeatedField<int64_t>& fan_outs) {
  return absl::StrJoin(fan_outs, ",", [](std::string* out, int64_t fan_out) {
    absl::StrAppend(out, fan_out < 0 ? "all" : absl::StrCat(fan_out));
  });
}

}  // namespace

std::string LinkText(const v1::LinkPrediction& links) {
  const std::string split =
      links.split() == v1::LinkPrediction::SPLIT_DATASET
          ? "split of the dataset"
          : absl::StrCat(100 * links.valid_part(), " % validate, ", 100 * links.test_part(), " % test");
  return absl::StrCat(split, " (seed ", links.split_seed(), "); ", CountText(links.negatives()), " and ",
                      CountText(links.eval_negatives()), " negatives, ",
                      EnumShortName(*v1::LinkPrediction::NegativeSampling_descriptor(), links.negative_sampling()),
                      "; decoder ", EnumShortName(*v1::LinkPrediction::Decoder_descriptor(), links.decoder()));
}

std::string BatchingText(const v1::Batching& batching) {
  std::string text = EnumShortName(*v1::Batching::Kind_descriptor(), batching.kind());
  if (batching.max_nodes() > 0) absl::StrAppend(&text, ", at most ", CountText(batching.max_nodes()), " nodes a batch");
  if (batching.max_edges() > 0) absl::StrAppend(&text, ", at most ", CountText(batching.max_edges()), " edges a batch");
  return text;
}

bool HasOnlyBudget(const v1::JobSpec& spec) {
  // A budget does not limit the number of seeds in a sampled block.
  return spec.batching().kind() == v1::Batching::KIND_BUDGET && spec.batch_size() == spec::kMaxBatchSize &&
         !spec.has_neighbor_sampling();
}

std::string SamplingText(const v1::NeighborSampling& sampling) {
  if (sampling.fan_outs().empty()) return "none: the whole graph in every step";
  std::string text = absl::StrCat("fan-out ", FanOutText(sampling.fan_outs()));
  if (sampling.replace()) absl::StrAppend(&text, ", with replacement");
  if (sampling.weighted()) absl::StrAppend(&text, ", by edge weight");
  if (sampling.sampler() == v1::SAMPLER_KIND_LABOR) absl::StrAppend(&text, ", by labor");
  if (sampling.disjoint()) absl::StrAppend(&text, ", disjoint");
  if (sampling.temporal() != v1::TEMPORAL_SAMPLING_UNSPECIFIED) {
    absl::StrAppend(&text, ", temporal (", EnumShortName(*v1::TemporalSampling_descriptor(), sampling.temporal()));
    if (sampling.has_seed_time()) absl::StrAppend(&text, ", before ", sampling.seed_time());
    absl::StrAppend(&text, ")");
  }
  absl::StrAppend(&text, "; evaluation ",
                  sampling.layer_wise_evaluation()   ? "layer by layer"
                  : sampling.eval_fan_outs().empty() ? "the same"
                                                     : FanOutText(sampling.eval_fan_outs()));
  absl::StrAppend(&text, "; up to ", sampling.look_ahead(), sampling.look_ahead() == 1 ? " batch" : " batches",
                  " ahead");
  if (sampling.no_page_advice()) absl::StrAppend(&text, ", no page advice");
  return text;
}

std::string WalkText(const v1::Node2Vec& walks) {
  std::string text = absl::StrCat(CountText(walks.walks_per_node()), " of ", CountText(walks.walk_length()),
                                  " nodes from each node, context ", CountText(walks.context_size()), ", ",
                                  CountText(walks.num_negative_samples()), " of random nodes beside each");
  if (walks.p() != 1 || walks.q() != 1) {
    absl::StrAppend(&text, ", p ", ExactText(walks.p()), ", q ", ExactText(walks.q()));
  }
  return text;
}

std::string LossText(const v1::JobSpec& spec) {
  std::string text = EnumShortName(*v1::JobSpec::Loss_descriptor(), spec.loss());
  if (spec.class_weights().empty()) return text;
  // The first weights are enough to recognise the list.
  constexpr int kShown = 8;
  const int shown = std::min(spec.class_weights_size(), kShown);
  const auto end = spec.class_weights().begin() + shown;
  absl::StrAppend(&text, ", class weights ",
                  absl::StrJoin(spec.class_weights().begin(), end, ",",
                                [](std::string* out, double weight) { absl::StrAppend(out, ExactText(weight)); }));
  if (shown < spec.class_weights_size()) absl::StrAppend(&text, ", ... of ", spec.class_weights_size());
  return text;
}

std::string ModelText(const v1::Job& job) {
  const v1::ModelSpec& model = job.spec().model();
  if (model.architecture() == v1::ModelSpec::ARCHITECTURE_PROGRAM) return model.program();
  std::string text = absl::StrCat(EnumShortName(*v1::ModelSpec::Architecture_descriptor(), model.architecture()), ", ",
                                  model.hidden_channels(), " channels");
  if (model.architecture() == v1::ModelSpec::ARCHITECTURE_NODE2VEC) return text;
  absl::StrAppend(&text, ", ", model.num_layers(), model.num_layers() == 1 ? " layer" : " layers");
  if (!IsNodeLevel(job)) {
    absl::StrAppend(&text, ", ", EnumShortName(*v1::ModelSpec::Pooling_descriptor(), model.pooling()), " pooling");
  }
  if (model.lowering() > v1::ModelSpec::LOWERING_AUTO) {
    absl::StrAppend(&text, ", ", EnumShortName(*v1::ModelSpec::Lowering_descriptor(), model.lowering()), " lowering");
  }
  if (model.precision() > v1::ModelSpec::PRECISION_FLOAT32) {
    absl::StrAppend(&text, ", ", EnumShortName(*v1::ModelSpec::Precision_descriptor(), model.precision()), " products");
  }
  if (model.heads() > 1) absl::StrAppend(&text, ", ", model.heads(), " heads");
  // A field is left out if its value is the default of a job that names only its dataset.
  const bool of_nodes = IsNodeLevel(job);
  const auto usual = of_nodes ? v1::ModelSpec::NORM_NONE : v1::ModelSpec::NORM_BATCH;
  if (model.norm() != v1::ModelSpec::NORM_UNSPECIFIED && model.norm() != usual) {
    absl::StrAppend(&text, ", ", EnumShortName(*v1::ModelSpec::Norm_descriptor(), model.norm()), " norm");
  }
  if (model.aggregation() > v1::ModelSpec::AGGREGATION_MEAN) {
    absl::StrAppend(&text, ", ", EnumShortName(*v1::ModelSpec::Aggregation_descriptor(), model.aggregation()),
                    " aggregation");
  }
  if (model.residual()) absl::StrAppend(&text, ", residual");
  if (model.jumping_knowledge() > v1::ModelSpec::JUMPING_KNOWLEDGE_LAST) {
    absl::StrAppend(&text, ", jumping knowledge ",
                    EnumShortName(*v1::ModelSpec::JumpingKnowledge_descriptor(), model.jumping_knowledge()));
  }
  if (model.virtual_node()) absl::StrAppend(&text, ", virtual node");
  if (model.normalize_features()) absl::StrAppend(&text, ", normalized features");
  if (model.node_inputs() > v1::ModelSpec::NODE_INPUTS_FEATURES) {
    absl::StrAppend(&text, ", ", EnumShortName(*v1::ModelSpec::NodeInputs_descriptor(), model.node_inputs()),
                    " node inputs");
  }
  const auto architecture =
      spec::kArchitectureNames.Parse(EnumShortName(*v1::ModelSpec::Architecture_descriptor(), model.architecture()));
  const bool reads_edges = architecture && spec::TraitsOf(*architecture).edges != spec::EdgeUse::kNone;
  if (reads_edges && model.edge_inputs() == v1::ModelSpec::EDGE_INPUTS_WEIGHTS) {
    absl::StrAppend(&text, ", weights of edges");
  } else if (reads_edges && of_nodes && model.edge_inputs() == v1::ModelSpec::EDGE_INPUTS_NONE) {
    absl::StrAppend(&text, ", no features of edges");
  }
  if (model.input_dropout() > 0) absl::StrAppend(&text, ", input dropout ", ExactText(model.input_dropout()));
  if (model.dropout() > 0) absl::StrAppend(&text, ", dropout ", ExactText(model.dropout()));
  return text;
}

std::string OptimizerText(const v1::OptimizerSpec& optimizer) {
  std::string text =
      absl::StrCat(EnumShortName(*v1::OptimizerSpec::Algorithm_descriptor(), optimizer.algorithm()), ", learning rate ",
                   ExactText(optimizer.learning_rate()), ", weight decay ", ExactText(optimizer.weight_decay()));
  if (optimizer.weight_decay_of() > v1::OptimizerSpec::WEIGHT_DECAY_OF_ALL) {
    absl::StrAppend(&text, " of ",
                    EnumShortName(*v1::OptimizerSpec::WeightDecayOf_descriptor(), optimizer.weight_decay_of()));
  }
  if (optimizer.momentum() > 0) {
    absl::StrAppend(&text, ", ", optimizer.nesterov() ? "Nesterov's " : "", "momentum ",
                    ExactText(optimizer.momentum()));
  }
  if (optimizer.schedule() > v1::OptimizerSpec::SCHEDULE_CONSTANT) {
    absl::StrAppend(&text, ", ", EnumShortName(*v1::OptimizerSpec::Schedule_descriptor(), optimizer.schedule()),
                    " schedule");
  }
  if (optimizer.decay_epochs() > 0) {
    absl::StrAppend(&text, " (times ", ExactText(optimizer.decay_factor()), " after every ",
                    CountText(optimizer.decay_epochs()), " epochs)");
  }
  if (optimizer.schedule() == v1::OptimizerSpec::SCHEDULE_PLATEAU) {
    absl::StrAppend(&text, " (times ", ExactText(optimizer.decay_factor()), " after more than ",
                    CountText(optimizer.plateau_patience()), " epochs without a validation that is better by ",
                    ExactText(100 * optimizer.plateau_threshold()), " %");
    if (optimizer.min_learning_rate() > 0) {
      absl::StrAppend(&text, ", not below ", ExactText(optimizer.min_learning_rate()));
    }
    absl::StrAppend(&text, ")");
  }
  if (optimizer.warmup_steps() > 0) {
    absl::StrAppend(&text, ", ", CountText(optimizer.warmup_steps()), " steps of warm-up");
  }
  if (optimizer.max_grad_norm() > 0) {
    absl::StrAppend(&text, ", gradients clipped to norm ", ExactText(optimizer.max_grad_norm()));
  }
  if (optimizer.accumulate_steps() > 1) {
    absl::StrAppend(&text, ", ", CountText(optimizer.accumulate_steps()), " batches an update");
  }
  if (optimizer.ema_decay() > 0) {
    absl::StrAppend(&text, ", averages of the weights with decay ", ExactText(optimizer.ema_decay()));
  }
  return text;
}

std::string InitText(const v1::InitFrom& from) {
  const std::string how = from.by_name() ? ", those that fit by name" : "";
  if (from.job().empty()) return absl::StrCat("the weights of ", OneLine(from.file()), how);
  return absl::StrCat("the ", EnumShortName(*v1::InitFrom::Weights_descriptor(), from.weights()), " weights of job ",
                      OneLine(StripCollection("jobs", from.job())), how);
}

std::string CheckpointText(const v1::Job& job) {
  const v1::CheckpointSpec& spec = job.spec().checkpoint();
  std::vector<std::string> when;
  if (spec.every_seconds() > 0) when.push_back(absl::StrCat("every ", CountText(spec.every_seconds()), " s"));
  if (spec.every_steps() > 0) when.push_back(absl::StrCat("every ", CountText(spec.every_steps()), " steps"));
  std::string text = when.empty() ? "at a stop and at the end" : absl::StrJoin(when, " and ");
  absl::StrAppend(&text, ", ", spec.keep(), " kept");
  if (job.progress().checkpoint_step() > 0) {
    absl::StrAppend(&text, "; the newest at step ", CountText(job.progress().checkpoint_step()));
  }
  return text;
}

}  // namespace permafrost::client
