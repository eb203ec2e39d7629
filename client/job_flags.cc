#include "client/job_flags.h"

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/commands.h"
#include "client/defaults.h"
#include "client/format.h"
#include "client/spec_field.h"
#include "client/spec_file.h"
#include "client/spec_view.h"
#include "client/weight_flags.h"

namespace permafrost::client {
namespace {

using spec::TrainOptions;

template <class Show>
std::string NumberDefault(const Show& show) {
  return JobDefault([&show](const TrainOptions& options) { return absl::StrCat(show(options)); });
}

void Override(const NeighborFlags& flags, v1::NeighborSampling& sampling) {
  if (!flags.fan_outs.empty()) sampling.mutable_fan_outs()->Assign(flags.fan_outs.begin(), flags.fan_outs.end());
  if (!flags.eval_fan_outs.empty())
    sampling.mutable_eval_fan_outs()->Assign(flags.eval_fan_outs.begin(), flags.eval_fan_outs.end());
  Override(flags.draw, sampling);
  if (flags.look_ahead) sampling.set_look_ahead(*flags.look_ahead);
  if (flags.layer_wise) sampling.set_layer_wise_evaluation(*flags.layer_wise);
  if (flags.no_page_advice) sampling.set_no_page_advice(*flags.no_page_advice);
}

void AddNeighborOptions(CLI::App& submit, NeighborFlags& flags) {
  AddFanOutOption(submit, "--fan-out", flags.fan_outs,
                  "One large graph: neighbours drawn of each node, hop by hop (default: the whole graph a step)");
  AddFanOutOption(submit, "--eval-fan-out", flags.eval_fan_outs, "The same in evaluation (default: as --fan-out)");
  AddDrawOptions(submit, flags.draw);
  AddSwitch(submit, "--layer-wise-eval", flags.layer_wise,
            "Evaluate layer by layer over the whole graph, not by samples");
  const std::string look_ahead = NumberDefault([](const TrainOptions& o) { return o.nodes.look_ahead; });
  submit
      .add_option("--look-ahead", flags.look_ahead,
                  absl::StrCat("Batches sampled ahead of the step, 1..64 (", look_ahead, ")"))
      ->type_name("N");
  AddSwitch(submit, "--no-page-advice", flags.no_page_advice, "Do not tell the kernel which pages come next");
}

void Override(const BatchingFlags& flags, v1::Batching& batching) {
  if (flags.kind) batching.set_kind(EnumOf<v1::Batching::Kind>(*v1::Batching::Kind_descriptor(), *flags.kind));
  if (flags.max_nodes) batching.set_max_nodes(*flags.max_nodes);
  if (flags.max_edges) batching.set_max_edges(*flags.max_edges);
}

void AddBatchingOptions(CLI::App& command, BatchingFlags& flags) {
  const std::string batching =
      JobDefault([](const TrainOptions& o) { return NameOf(spec::kBatchingNames, o.batching.kind); });
  AddEnumOption(command, "--batching", flags.kind, *v1::Batching::Kind_descriptor(),
                absl::StrCat("Which graphs meet in a training batch; balanced: of nearly equal size; budget: within "
                             "--max-nodes and --max-edges, with --fan-out each sampled block (",
                             batching, ")"));
  command.add_option("--max-nodes", flags.max_nodes, "With --batching budget: most nodes of a batch")->type_name("N");
  command.add_option("--max-edges", flags.max_edges, "With --batching budget: most directed edges of a batch")
      ->type_name("N");
}

void Override(const FoldFlags& flags, v1::CrossValidation& folds) {
  if (flags.folds) folds.set_folds(*flags.folds);
  if (flags.fold) folds.set_fold(*flags.fold);
  if (flags.seed) folds.set_seed(*flags.seed);
}

void AddFoldOptions(CLI::App& command, FoldFlags& flags) {
  command
      .add_option("--folds", flags.folds,
                  "Sets of graphs: divide them anew into so many folds, 3..1000, stratified by class; 0: the dataset's "
                  "splits (default 0)")
      ->type_name("N");
  command
      .add_option("--fold", flags.fold,
                  "With --folds: the one that tests; the next one validates, the others train (default 0)")
      ->type_name("N");
  command.add_option("--fold-seed", flags.seed, "With --folds: which graphs meet in a fold (default 0)")
      ->check(NotNegative())
      ->type_name("N");
}

void Override(const JobFlags& flags, v1::ModelSpec& model) {
  if (flags.model) {
    model.set_architecture(
        EnumOf<v1::ModelSpec::Architecture>(*v1::ModelSpec::Architecture_descriptor(), *flags.model));
  }
  if (flags.hidden) model.set_hidden_channels(*flags.hidden);
  if (flags.layers) model.set_num_layers(*flags.layers);
  if (flags.heads) model.set_heads(*flags.heads);
  if (flags.pooling)
    model.set_pooling(EnumOf<v1::ModelSpec::Pooling>(*v1::ModelSpec::Pooling_descriptor(), *flags.pooling));
  if (flags.norm) model.set_norm(EnumOf<v1::ModelSpec::Norm>(*v1::ModelSpec::Norm_descriptor(), *flags.norm));
  if (flags.jumping_knowledge) {
    model.set_jumping_knowledge(EnumOf<v1::ModelSpec::JumpingKnowledge>(*v1::ModelSpec::JumpingKnowledge_descriptor(),
                                                                        *flags.jumping_knowledge));
  }
  if (flags.lowering)
    model.set_lowering(EnumOf<v1::ModelSpec::Lowering>(*v1::ModelSpec::Lowering_descriptor(), *flags.lowering));
  if (flags.precision)
    model.set_precision(EnumOf<v1::ModelSpec::Precision>(*v1::ModelSpec::Precision_descriptor(), *flags.precision));
  if (flags.aggregation) {
    model.set_aggregation(
        EnumOf<v1::ModelSpec::Aggregation>(*v1::ModelSpec::Aggregation_descriptor(), *flags.aggregation));
  }
  if (flags.dropout) model.set_dropout(*flags.dropout);
  if (flags.input_dropout) model.set_input_dropout(*flags.input_dropout);
  if (flags.residual) model.set_residual(*flags.residual);
  if (flags.virtual_node) model.set_virtual_node(*flags.virtual_node);
  if (flags.normalize_features) model.set_normalize_features(*flags.normalize_features);
  if (flags.node_inputs) {
    model.set_node_inputs(
        EnumOf<v1::ModelSpec::NodeInputs>(*v1::ModelSpec::NodeInputs_descriptor(), *flags.node_inputs));
  }
  if (flags.edge_inputs) {
    model.set_edge_inputs(
        EnumOf<v1::ModelSpec::EdgeInputs>(*v1::ModelSpec::EdgeInputs_descriptor(), *flags.edge_inputs));
  }
}

void Override(const JobFlags& flags, v1::JobSpec& spec) {
  if (flags.dataset) spec.set_dataset(*flags.dataset);
  if (!spec.dataset().empty()) spec.set_dataset(WithCollection("datasets", spec.dataset()));
  Override(flags, *spec.mutable_model());
  v1::OptimizerSpec& optimizer = *spec.mutable_optimizer();
  if (flags.optimizer) {
    optimizer.set_algorithm(
        EnumOf<v1::OptimizerSpec::Algorithm>(*v1::OptimizerSpec::Algorithm_descriptor(), *flags.optimizer));
  }
  if (flags.learning_rate) optimizer.set_learning_rate(*flags.learning_rate);
  if (flags.weight_decay) optimizer.set_weight_decay(*flags.weight_decay);
  if (flags.max_grad_norm) optimizer.set_max_grad_norm(*flags.max_grad_norm);
  if (flags.schedule) {
    optimizer.set_schedule(
        EnumOf<v1::OptimizerSpec::Schedule>(*v1::OptimizerSpec::Schedule_descriptor(), *flags.schedule));
  }
  if (flags.warmup_steps) optimizer.set_warmup_steps(*flags.warmup_steps);
  if (flags.momentum) optimizer.set_momentum(*flags.momentum);
  if (flags.nesterov) optimizer.set_nesterov(*flags.nesterov);
  if (flags.decay_epochs) optimizer.set_decay_epochs(*flags.decay_epochs);
  if (flags.decay_factor) optimizer.set_decay_factor(*flags.decay_factor);
  if (flags.loss) spec.set_loss(EnumOf<v1::JobSpec::Loss>(*v1::JobSpec::Loss_descriptor(), *flags.loss));
  if (flags.epochs) spec.set_epochs(*flags.epochs);
  if (flags.patience) spec.set_patience(*flags.patience);
  if (flags.non_finite) {
    spec.set_non_finite(EnumOf<v1::JobSpec::NonFinite>(*v1::JobSpec::NonFinite_descriptor(), *flags.non_finite));
  }
  if (flags.batch_size) spec.set_batch_size(*flags.batch_size);
  if (flags.seed) spec.set_seed(*flags.seed);
  if (flags.priority) spec.set_priority(*flags.priority);
  Override(flags.limits, spec);
  v1::CheckpointSpec& checkpoint = *spec.mutable_checkpoint();
  if (flags.checkpoint_every) checkpoint.set_every_steps(*flags.checkpoint_every);
  if (flags.checkpoint_seconds) checkpoint.set_every_seconds(*flags.checkpoint_seconds);
  if (flags.checkpoint_keep) checkpoint.set_keep(*flags.checkpoint_keep);
  if (!flags.class_weights.empty())
    spec.mutable_class_weights()->Assign(flags.class_weights.begin(), flags.class_weights.end());
  if (!flags.metrics.empty()) spec.clear_metrics();
  for (const std::string& metric : flags.metrics)
    spec.add_metrics(EnumOf<v1::Metric>(*v1::Metric_descriptor(), metric));
  Override(flags.updates, optimizer);
  Override(flags.weights, spec);
  if (flags.folds.any()) Override(flags.folds, *spec.mutable_cross_validation());
  if (flags.batching.any()) Override(flags.batching, *spec.mutable_batching());
  if (flags.neighbors.any() || spec.has_neighbor_sampling()) {
    Override(flags.neighbors, *spec.mutable_neighbor_sampling());
  }
  LinkFlags links = flags.links;
  if (links.negatives && Walks(spec)) {
    spec.mutable_node2vec()->set_num_negative_samples(*links.negatives);
    links.negatives.reset();
  }
  if (links.any()) Override(links, *spec.mutable_link_prediction());
  if (links.enabled == false && !links.any()) spec.clear_link_prediction();
  if (flags.walks.any()) Override(flags.walks, *spec.mutable_node2vec());
  if (flags.cache.any()) Override(flags.cache, *spec.mutable_graph_cache());
}

}  // namespace

void AddJobFlags(CLI::App& command, JobFlags& flags) {
  const std::string architecture =
      JobDefault([](const TrainOptions& o) { return NameOf(spec::kArchitectureNames, o.model.architecture); });
  const std::string model_norm =
      JobDefault([](const TrainOptions& o) { return NameOf(spec::kNormNames, o.model.norm); });
  const std::string joined =
      JobDefault([](const TrainOptions& o) { return NameOf(spec::kJumpingKnowledgeNames, o.model.jumping_knowledge); });
  const std::string heads = NumberDefault([](const TrainOptions& o) { return o.model.heads; });
  const std::string input_dropout = NumberDefault([](const TrainOptions& o) { return o.model.input_dropout; });
  const std::string hidden = NumberDefault([](const TrainOptions& o) { return o.model.hidden_channels; });
  const std::string layers = NumberDefault([](const TrainOptions& o) { return o.model.num_layers; });
  const std::string dropout = NumberDefault([](const TrainOptions& o) { return o.model.dropout; });
  const std::string epochs = NumberDefault([](const TrainOptions& o) { return o.epochs; });
  const std::string batch_size = NumberDefault([](const TrainOptions& o) { return o.batch_size; });
  const std::string rate = NumberDefault([](const TrainOptions& o) { return o.optimizer.learning_rate; });
  const std::string decay = NumberDefault([](const TrainOptions& o) { return o.optimizer.weight_decay; });
  const std::string norm = NumberDefault([](const TrainOptions& o) { return o.optimizer.max_grad_norm; });
  const std::string warmup = NumberDefault([](const TrainOptions& o) { return o.optimizer.warmup_steps; });
  const std::string momentum = NumberDefault([](const TrainOptions& o) { return o.optimizer.momentum; });
  const std::string decay_factor = NumberDefault([](const TrainOptions& o) { return o.optimizer.decay_factor; });
  const std::string seed = NumberDefault([](const TrainOptions& o) { return o.seed; });
  const std::string every = NumberDefault([](const TrainOptions& o) { return o.checkpoint.every_steps; });
  const std::string seconds = NumberDefault([](const TrainOptions& o) { return o.checkpoint.every_seconds; });
  const std::string keep = NumberDefault([](const TrainOptions& o) { return o.checkpoint.keep; });
  const std::string pooling =
      JobDefault([](const TrainOptions& o) { return NameOf(spec::kPoolingNames, o.model.pooling); });
  const std::string lowering =
      JobDefault([](const TrainOptions& o) { return NameOf(spec::kLoweringNames, o.model.lowering); });
  const std::string precision =
      JobDefault([](const TrainOptions& o) { return NameOf(spec::kPrecisionNames, o.model.precision); });
  const std::string optimizer =
      JobDefault([](const TrainOptions& o) { return NameOf(spec::kOptimizerNames, o.optimizer.algorithm); });
  const std::string schedule =
      JobDefault([](const TrainOptions& o) { return NameOf(spec::kScheduleNames, o.optimizer.schedule); });
  const std::string loss = JobDefault([](const TrainOptions& o) { return NameOf(spec::kLossNames, o.loss); });
  command.add_option("--file", flags.file, "Job in YAML, or in JSON (*.json); flags override it")->type_name("FILE");
  command.add_option("--dataset", flags.dataset, "Dataset to train on")->type_name("NAME");
  AddEnumOption(command, "--model,--architecture", flags.model, *v1::ModelSpec::Architecture_descriptor(),
                absl::StrCat("Model (", architecture, ")"));
  command.add_option("--hidden", flags.hidden, absl::StrCat("Channels of a node, 1..4096 (", hidden, ")"))
      ->type_name("N");
  command
      .add_option("--layers", flags.layers,
                  absl::StrCat("Message-passing layers, 1..64 (", layers, "; with --fan-out one for each of it)"))
      ->type_name("N");
  AddEnumOption(command, "--pooling", flags.pooling, *v1::ModelSpec::Pooling_descriptor(),
                absl::StrCat("How nodes become a graph (", pooling, ")"));
  AddEnumOption(
      command, "--lowering", flags.lowering, *v1::ModelSpec::Lowering_descriptor(),
      absl::StrCat("Operators of a step: shape-free ones add nothing to the graph cache of MPS (", lowering, ")"));
  AddEnumOption(
      command, "--precision", flags.precision, *v1::ModelSpec::Precision_descriptor(),
      absl::StrCat("Factors of products with weights; bfloat16 wants a CPU with AVX512-BF16 (", precision, ")"));
  command
      .add_option("--dropout", flags.dropout,
                  absl::StrCat("Part of a layer's outputs zeroed in training (", dropout, ")"))
      ->type_name("P");
  command
      .add_option("--input-dropout", flags.input_dropout,
                  absl::StrCat("Part of the node features of one large graph zeroed in training (", input_dropout, ")"))
      ->type_name("P");
  command
      .add_option("--heads", flags.heads,
                  absl::StrCat("Heads of gatv2's attention, 1..64, which share the channels (", heads, ")"))
      ->type_name("N");
  AddEnumOption(command, "--aggregation", flags.aggregation, *v1::ModelSpec::Aggregation_descriptor(),
                "What sage makes of its neighbours' rows (default mean)");
  AddEnumOption(command, "--norm", flags.norm, *v1::ModelSpec::Norm_descriptor(),
                absl::StrCat("Norm after each convolution (", model_norm, ")"));
  AddEnumOption(
      command, "--jumping-knowledge", flags.jumping_knowledge, *v1::ModelSpec::JumpingKnowledge_descriptor(),
      absl::StrCat("What predicts: the last layer, or all side by side, or their largest values (", joined, ")"));
  AddSwitch(command, "--residual", flags.residual, "A layer's input is added to its output");
  AddSwitch(command, "--virtual-node", flags.virtual_node, "Each graph of a set has a node that sees all of its nodes");
  AddSwitch(command, "--normalize-features", flags.normalize_features,
            "Node features of one large graph are divided by their row's sum of magnitudes");
  AddEnumOption(
      command, "--node-inputs", flags.node_inputs, *v1::ModelSpec::NodeInputs_descriptor(),
      "What a node begins with (default features where there are some, else learned on one large graph, degree "
      "in sets of graphs)");
  AddEnumOption(command, "--edge-inputs", flags.edge_inputs, *v1::ModelSpec::EdgeInputs_descriptor(),
                "What gine and gatv2 read of the edges of one large graph (default features where there are some)");
  command.add_option("--epochs", flags.epochs, absl::StrCat("Passes over the train split (", epochs, ")"))
      ->type_name("N");
  command
      .add_option("--patience", flags.patience,
                  "End after so many epochs without a better validation (default: train all epochs)")
      ->type_name("N");
  AddEnumOption(
      command, "--non-finite", flags.non_finite, *v1::JobSpec::NonFinite_descriptor(),
      "Once a loss or a weight is not finite: fail, or go back to the newest checkpoint and skip\nthe batches "
      "that made it so (default fail)");
  command
      .add_option("--batch-size", flags.batch_size,
                  absl::StrCat("Graphs a batch, or seed nodes or links of one large graph (", batch_size,
                               ", of node2vec 128;\nwith --batching budget as many graphs as it holds)"))
      ->type_name("N");
  command.add_option("--lr", flags.learning_rate, absl::StrCat("Learning rate (", rate, "; of node2vec 0.01)"))
      ->type_name("X");
  command.add_option("--weight-decay", flags.weight_decay, absl::StrCat("Weight decay (", decay, ")"))->type_name("X");
  AddEnumOption(command, "--optimizer", flags.optimizer, *v1::OptimizerSpec::Algorithm_descriptor(),
                absl::StrCat("Optimizer (", optimizer, "; of node2vec sparse-adam)"));
  command
      .add_option("--max-grad-norm", flags.max_grad_norm,
                  absl::StrCat("Gradients are clipped to this norm; 0: not (", norm, ")"))
      ->type_name("X");
  AddEnumOption(command, "--schedule", flags.schedule, *v1::OptimizerSpec::Schedule_descriptor(),
                absl::StrCat("How the learning rate changes (", schedule, ")"));
  command
      .add_option("--warmup-steps", flags.warmup_steps,
                  absl::StrCat("Updates over which the learning rate rises from 0 (", warmup, ")"))
      ->type_name("N");
  command.add_option("--momentum", flags.momentum, absl::StrCat("Momentum of sgd, 0 <= X < 1 (", momentum, ")"))
      ->type_name("X");
  AddSwitch(command, "--nesterov", flags.nesterov, "Nesterov's momentum");
  command
      .add_option("--decay-epochs", flags.decay_epochs,
                  "Of --schedule step: epochs from one fall of the learning rate to the next")
      ->type_name("N");
  command
      .add_option("--decay-factor", flags.decay_factor,
                  absl::StrCat("Of --schedule step and plateau: what the learning rate is multiplied with (",
                               decay_factor, ")"))
      ->type_name("X");
  AddUpdateOptions(command, flags.updates);
  AddWeightOptions(command, flags.weights);
  AddEnumOption(command, "--loss", flags.loss, *v1::JobSpec::Loss_descriptor(), absl::StrCat("Loss (", loss, ")"));
  command.add_option("--class-weights", flags.class_weights, "Weight of each class, for cross-entropy and bce")
      ->delimiter(',')
      ->type_name("X,...");
  command
      .add_option(
          "--metrics", flags.metrics,
          "What evaluation reports; the first one chooses the best epoch: mae, rmse, r2 for l1 and mse; accuracy, "
          "f1-macro, f1-micro, roc-auc, average-precision for the others; of links roc-auc, average-precision, mrr, "
          "hits-at-10, -20, -50, -100 (default: mae; accuracy for cross-entropy; roc-auc for bce; mrr for links)")
      ->check(OneOf(EnumShortNames(*v1::Metric_descriptor())))
      ->delimiter(',')
      ->type_name("METRIC,...");
  AddFoldOptions(command, flags.folds);
  command.add_option("--seed", flags.seed, absl::StrCat("Seed of weights and shuffling (", seed, ")"))
      ->check(NotNegative())
      ->type_name("N");
  command
      .add_option("--priority", flags.priority,
                  "Higher runs first, and takes the device from a lower one, -100..100 (default 0)")
      ->type_name("N");
  AddLimitFlags(command, flags.limits);
  command
      .add_option("--checkpoint-every", flags.checkpoint_every,
                  absl::StrCat("Steps between checkpoints; 0: not by steps (", every, ")"))
      ->type_name("STEPS");
  command
      .add_option("--checkpoint-seconds", flags.checkpoint_seconds,
                  absl::StrCat("Seconds between checkpoints, 0..86400; 0: not by time (", seconds, ")"))
      ->type_name("SECONDS");
  command.add_option("--checkpoint-keep", flags.checkpoint_keep, absl::StrCat("Checkpoints kept, 1..100 (", keep, ")"))
      ->type_name("N");
  AddBatchingOptions(command, flags.batching);
  AddNeighborOptions(command, flags.neighbors);
  AddLinkOptions(command, flags.links);
  AddWalkOptions(command, flags.walks);
  AddCachePolicyOptions(command, "--cache-policy", "default: the server's",
                        "default: the server's; derived where --cache-policy differs from the server's", flags.cache);
  std::set<std::string> checked;
  for (const auto& field : kZeroIsDefault) {
    if (checked.insert(field.flag).second) command.get_option(field.flag)->check(NotZero());
  }
}

bool ReadJob(const JobFlags& flags, Session& session, v1::CreateJobRequest& request, ExitCode& exit,
             DatasetNeed dataset) {
  if (!flags.file.empty()) {
    auto from_file = ReadSpecFile(flags.file);
    if (!from_file.ok()) {
      exit = session.Fail(FileFailure(from_file.status()));
      return false;
    }
    request = *std::move(from_file);
  }
  Override(flags, *request.mutable_spec());
  if (!request.spec().dataset().empty() || dataset == DatasetNeed::kLater) return true;
  exit = session.Fail(UsageFailure("--dataset is missing: name one, or give it as `dataset` in --file"));
  return false;
}

std::string SubjectOf(const v1::JobSpec& spec) {
  const std::string dataset = OneLine(StripCollection("datasets", spec.dataset()));
  if (HasOnlyBudget(spec)) return absl::StrCat(dataset, ", batches of a budget");
  return spec.batch_size() > 0 ? absl::StrCat(dataset, ", batches of ", CountText(spec.batch_size())) : dataset;
}

}  // namespace permafrost::client
