#include "client/job_view.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cache_view.h"
#include "client/format.h"
#include "client/label_flags.h"
#include "client/table.h"
#include "client/wire_time.h"
#include "permafrost/v1/enum_text.h"

namespace permafrost::client {
namespace {

std::string JobId(const v1::Job& job) { return std::string(StripCollection("jobs", job.name())); }

Cell StateCell(v1::Job::State state) {
  switch (state) {
    case v1::Job::STATE_RUNNING:
    case v1::Job::STATE_SUCCEEDED:
      return {StateName(state), Tone::kGood};
    case v1::Job::STATE_CANCELLING:
    case v1::Job::STATE_CANCELLED:
    case v1::Job::STATE_PAUSED:
      return {StateName(state), Tone::kWarn};
    case v1::Job::STATE_FAILED:
      return {StateName(state), Tone::kBad};
    default:
      return StateName(state);
  }
}

// Of a job that waits: nothing yet.
std::string EpochText(const v1::Job& job) {
  const int64_t epoch = job.progress().epoch();
  return epoch == 0 ? absl::StrCat("-/", job.spec().epochs()) : absl::StrCat(epoch, "/", job.spec().epochs());
}

std::string BestValidText(const v1::Job& job) {
  if (!job.has_result()) return kNothing;
  return absl::StrCat(MetricName(job), " ", MetricText(job.result().best_valid_metric()));
}

// What a job counts as graphs: on one large graph its seed nodes, or its links.
std::string Unit(const v1::Job& job) {
  if (job.spec().has_link_prediction()) return "links";
  return IsNodeLevel(job) ? "nodes" : "graphs";
}

std::string LinkText(const v1::LinkPrediction& links) {
  return absl::StrCat(100 * links.valid_part(), " % validate, ", 100 * links.test_part(), " % test (seed ",
                      links.split_seed(), "); ", CountText(links.negatives()), " and ",
                      CountText(links.eval_negatives()), " negatives, ",
                      EnumShortName(*v1::LinkPrediction::NegativeSampling_descriptor(), links.negative_sampling()),
                      "; decoder ", EnumShortName(*v1::LinkPrediction::Decoder_descriptor(), links.decoder()));
}

std::string FanOutText(const google::protobuf::RepeatedField<int64_t>& fan_outs) {
  return absl::StrJoin(fan_outs, ",", [](std::string* out, int64_t fan_out) {
    absl::StrAppend(out, fan_out < 0 ? "all" : absl::StrCat(fan_out));
  });
}

std::string BatchingText(const v1::Batching& batching) {
  std::string text = EnumShortName(*v1::Batching::Kind_descriptor(), batching.kind());
  if (batching.max_nodes() > 0) absl::StrAppend(&text, ", at most ", CountText(batching.max_nodes()), " nodes a batch");
  if (batching.max_edges() > 0) absl::StrAppend(&text, ", at most ", CountText(batching.max_edges()), " edges a batch");
  return text;
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

std::string LossText(const v1::JobSpec& spec) {
  std::string text = EnumShortName(*v1::JobSpec::Loss_descriptor(), spec.loss());
  if (spec.class_weights().empty()) return text;
  // Enough to know them by.
  constexpr int kShown = 8;
  const int shown = std::min(spec.class_weights_size(), kShown);
  const auto end = spec.class_weights().begin() + shown;
  absl::StrAppend(&text, ", class weights ",
                  absl::StrJoin(spec.class_weights().begin(), end, ",",
                                [](std::string* out, double weight) { absl::StrAppend(out, ExactText(weight)); }));
  if (shown < spec.class_weights_size()) absl::StrAppend(&text, ", ... of ", spec.class_weights_size());
  return text;
}

// The sampler that runs ahead, and whether memory and disk keep up with it.
void AddLookAhead(const v1::Progress& progress, std::vector<Field>& fields) {
  const v1::LookAhead& ahead = progress.look_ahead();
  fields.push_back(
      {"look-ahead", absl::StrCat(ahead.ready(), " of ", ahead.depth(), " batches ready, ", CountText(ahead.stalls()),
                                  ahead.stalls() == 1 ? " stall, " : " stalls, ", CountText(ahead.sampled_edges()),
                                  " edges sampled")});
  if (ahead.has_features()) {
    const v1::FeatureReading& features = ahead.features();
    fields.push_back({"features", absl::StrCat(CountText(features.hits() + features.misses()), " rows asked for, ",
                                               ShareText(features.hits(), features.hits() + features.misses()),
                                               " of them found in memory, ", BytesText(features.read_bytes()),
                                               " read by ", features.reader(), " in ", CountText(features.reads()),
                                               " reads, ", features.depth(), " at once")});
    fields.push_back(
        {"feature cache", absl::StrCat(BytesText(features.used_bytes()), " of ", BytesText(features.budget_bytes()),
                                       ", ", CountText(features.rows()), " rows; batches waited ",
                                       DurationText(absl::Seconds(features.stall_seconds())), " for reads")});
    if (!features.fallback().empty()) fields.push_back({"", features.fallback()});
  }
  if (ahead.wanted_pages() == 0) return;
  std::string pages = absl::StrCat(CountText(ahead.wanted_pages()), " wanted");
  if (ahead.sampled_pages() > 0)
    absl::StrAppend(&pages, ", ", ShareText(ahead.resident_pages(), ahead.sampled_pages()), " in memory already");
  absl::StrAppend(&pages, ", ", BytesText(ahead.advised_bytes()), " advised, ", CountText(ahead.major_faults()),
                  ahead.major_faults() == 1 ? " major fault" : " major faults");
  fields.push_back({"pages", pages});
}

// Since the first start, until the end or now.
std::string RunTimeText(const v1::Job& job, absl::Time now) {
  if (!job.has_start_time()) return kNothing;
  return DurationText((job.has_end_time() ? ToTime(job.end_time()) : now) - ToTime(job.start_time()));
}

std::string ModelText(const v1::Job& job) {
  const v1::ModelSpec& model = job.spec().model();
  std::string text = absl::StrCat(EnumShortName(*v1::ModelSpec::Architecture_descriptor(), model.architecture()), ", ",
                                  model.hidden_channels(), " channels, ", model.num_layers(),
                                  model.num_layers() == 1 ? " layer" : " layers");
  if (!IsNodeLevel(job)) {
    absl::StrAppend(&text, ", ", EnumShortName(*v1::ModelSpec::Pooling_descriptor(), model.pooling()), " pooling");
  }
  if (model.lowering() > v1::ModelSpec::LOWERING_AUTO) {
    absl::StrAppend(&text, ", ", EnumShortName(*v1::ModelSpec::Lowering_descriptor(), model.lowering()), " lowering");
  }
  if (model.heads() > 1) absl::StrAppend(&text, ", ", model.heads(), " heads");
  // What is as a job of nothing else than its dataset has it is not said.
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
                    CountText(optimizer.plateau_patience()), " epochs without a better validation)");
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

void AddProgress(const v1::Job& job, std::vector<Field>& fields) {
  const v1::Progress& progress = job.progress();
  fields.push_back({"epoch", EpochText(job)});
  if (progress.step() == 0) return;
  fields.push_back({"steps", absl::StrCat(CountText(progress.step()), " of ",
                                          CountText(progress.steps_per_epoch() * job.spec().epochs()))});
  fields.push_back(
      {"trained on", absl::StrCat(CountText(progress.graphs()), Unit(job) == "nodes" ? " seed " : " ", Unit(job), ", ",
                                  CountText(progress.nodes()), " nodes, ", CountText(progress.edges()), " edges")});
  if (progress.skipped_batches() > 0) {
    fields.push_back({"skipped", absl::StrCat(CountText(progress.skipped_batches()), " batches that were not finite")});
  }
  fields.push_back({"padding", absl::StrCat(CountText(progress.padding_nodes()), " nodes, ",
                                            CountText(progress.padding_edges()), " edges")});
  const v1::PhaseSeconds& phase = progress.phase_seconds();
  fields.push_back({"time by phase", absl::StrCat("batch ", DurationText(absl::Seconds(phase.batch())), ", forward ",
                                                  DurationText(absl::Seconds(phase.forward())), ", backward ",
                                                  DurationText(absl::Seconds(phase.backward())), ", optimizer ",
                                                  DurationText(absl::Seconds(phase.optimizer())))});
  if (progress.has_look_ahead()) AddLookAhead(progress, fields);
  if (job.state() != v1::Job::STATE_RUNNING) return;
  fields.push_back({"speed", absl::StrCat(ShortText(progress.graphs_per_second()), " ", Unit(job), "/s")});
  if (progress.has_eta()) fields.push_back({"ETA", EtaText(ToDuration(progress.eta()))});
}

}  // namespace

std::string WhenText(const google::protobuf::Timestamp& wire, const ViewTime& time) {
  const absl::Time t = ToTime(wire);
  return absl::StrCat(ClockText(t, time.zone), " (", AgeText(t, time.now, time.zone), ")");
}

bool IsTerminal(v1::Job::State state) {
  return state == v1::Job::STATE_SUCCEEDED || state == v1::Job::STATE_FAILED || state == v1::Job::STATE_CANCELLED;
}

std::string StateName(v1::Job::State state) { return EnumShortName(*v1::Job::State_descriptor(), state); }

std::string MetricName(v1::Metric metric) {
  switch (metric) {
    case v1::METRIC_ACCURACY:
      return "accuracy";
    case v1::METRIC_ROC_AUC:
      return "ROC-AUC";
    case v1::METRIC_F1_MACRO:
      return "macro F1";
    case v1::METRIC_F1_MICRO:
      return "micro F1";
    case v1::METRIC_AVERAGE_PRECISION:
      return "avg. precision";
    case v1::METRIC_RMSE:
      return "RMSE";
    case v1::METRIC_R2:
      return "R2";
    case v1::METRIC_MRR:
      return "MRR";
    case v1::METRIC_HITS_AT_10:
      return "hits@10";
    case v1::METRIC_HITS_AT_20:
      return "hits@20";
    case v1::METRIC_HITS_AT_50:
      return "hits@50";
    case v1::METRIC_HITS_AT_100:
      return "hits@100";
    default:
      return "MAE";
  }
}

std::string MetricName(const v1::Job& job) {
  if (!job.spec().metrics().empty()) return MetricName(job.spec().metrics(0));
  if (job.spec().has_link_prediction()) return MetricName(v1::METRIC_MRR);
  switch (job.spec().loss()) {
    case v1::JobSpec::LOSS_CROSS_ENTROPY:
      return MetricName(v1::METRIC_ACCURACY);
    case v1::JobSpec::LOSS_BCE:
      return MetricName(v1::METRIC_ROC_AUC);
    default:
      return MetricName(v1::METRIC_MAE);
  }
}

// The daemon says how a node-level job samples, and of no other.
bool IsNodeLevel(const v1::Job& job) { return job.spec().has_neighbor_sampling(); }

EpochTable EpochTableOf(const v1::Job& job) {
  EpochTable table{job.spec().epochs(), MetricName(job), Unit(job), {}};
  for (int i = 1; i < job.spec().metrics_size(); ++i) table.more_metrics.push_back(MetricName(job.spec().metrics(i)));
  return table;
}

JobSnapshot ToSnapshot(const v1::Job& job, std::optional<double> valid_metric) {
  const v1::Progress& progress = job.progress();
  JobSnapshot snapshot;
  snapshot.state = StateName(job.state());
  snapshot.epoch = progress.epoch();
  snapshot.epochs = job.spec().epochs();
  snapshot.step = progress.step();
  snapshot.steps_total = progress.steps_per_epoch() * job.spec().epochs();
  if (progress.step_in_epoch() > 0) snapshot.loss = progress.loss();
  snapshot.metric = MetricName(job);
  snapshot.unit = Unit(job);
  snapshot.valid_metric = valid_metric;
  snapshot.units_per_second = progress.graphs_per_second();
  if (progress.has_eta()) snapshot.eta = ToDuration(progress.eta());
  snapshot.warm_up_done = progress.warm_up_done();
  snapshot.warm_up_total = progress.warm_up_total();
  return snapshot;
}

EpochRow ToEpochRow(const v1::EpochMetrics& epoch) {
  EpochRow row{epoch.epoch(),
               epoch.train_loss(),
               epoch.valid_loss(),
               epoch.valid_metric(),
               epoch.graphs_per_second(),
               absl::Seconds(epoch.train_seconds() + epoch.valid_seconds()),
               {}};
  for (int i = 1; i < epoch.valid_metrics_size(); ++i) row.more_metrics.push_back(epoch.valid_metrics(i).value());
  return row;
}

std::string RenderJobList(const std::vector<v1::Job>& jobs, const ViewTime& time, const RenderStyle& style) {
  std::vector<Column> columns{{"JOB"},
                              {"STATE"},
                              {"DATASET"},
                              {"EPOCH", Align::kRight},
                              {"VALID METRIC", Align::kRight},
                              {"PRIORITY", Align::kRight},
                              {"CREATED", Align::kRight},
                              {"TIME", Align::kRight}};
  const bool labelled = std::ranges::any_of(jobs, [](const v1::Job& job) { return !job.labels().empty(); });
  if (labelled) columns.push_back({"LABELS"});
  std::vector<std::vector<Cell>> rows;
  rows.reserve(jobs.size());
  for (const v1::Job& job : jobs) {
    rows.push_back({JobId(job), StateCell(job.state()), std::string(StripCollection("datasets", job.spec().dataset())),
                    EpochText(job), BestValidText(job), absl::StrCat(job.spec().priority()),
                    AgeText(ToTime(job.create_time()), time.now, time.zone), RunTimeText(job, time.now)});
    if (labelled) rows.back().emplace_back(job.labels().empty() ? kNothing : OneLine(LabelsText(job.labels())));
  }
  return RenderTable(columns, rows, style);
}

std::string RenderJob(const v1::Job& job, const ViewTime& time, const RenderStyle& style) {
  const v1::JobSpec& spec = job.spec();
  std::vector<Field> fields{
      {"state", job.pausing() ? Cell("running, pauses at its next step", Tone::kWarn) : StateCell(job.state())},
      {"dataset", std::string(StripCollection("datasets", spec.dataset()))},
      {"model", ModelText(job)},
      {"optimizer", OptimizerText(spec.optimizer())},
      {"loss", LossText(spec)},
      {"batch size", absl::StrCat(spec.batch_size())},
      {"seed", absl::StrCat(spec.seed())},
      {"priority", absl::StrCat(spec.priority())},
      {"checkpoints", CheckpointText(job)},
  };
  if (!job.labels().empty()) fields.push_back({"labels", OneLine(LabelsText(job.labels()))});
  if (spec.has_init_from()) fields.push_back({"begins with", InitText(spec.init_from())});
  if (spec.fixed_parameters_size() > 0) {
    fields.push_back({"not trained", OneLine(absl::StrJoin(spec.fixed_parameters(), ", "))});
  }
  if (spec.cross_validation().folds() > 0) {
    const v1::CrossValidation& folds = spec.cross_validation();
    fields.push_back({"fold", absl::StrCat(folds.fold(), " of ", folds.folds(), ", seed ", folds.seed())});
  }
  if (spec.batching().kind() > v1::Batching::KIND_RANDOM) fields.push_back({"batching", BatchingText(spec.batching())});
  if (spec.has_link_prediction()) fields.push_back({"links", LinkText(spec.link_prediction())});
  if (spec.has_neighbor_sampling()) fields.push_back({"sampling", SamplingText(spec.neighbor_sampling())});
  if (spec.has_graph_cache()) fields.push_back({"graph cache", PolicyText(spec.graph_cache())});
  if (job.has_create_time()) fields.push_back({"created", WhenText(job.create_time(), time)});
  if (job.has_start_time()) fields.push_back({"started", WhenText(job.start_time(), time)});
  if (job.has_end_time()) fields.push_back({"ended", WhenText(job.end_time(), time)});
  if (job.resumes() > 0) fields.push_back({"resumes", absl::StrCat(job.resumes())});
  AddProgress(job, fields);
  if (!job.error().empty()) fields.push_back({"error", {job.error(), Tone::kBad}});
  if (!job.last_error().empty()) fields.push_back({"last error", {job.last_error(), Tone::kWarn}});
  if (job.has_retry_time()) fields.push_back({"runs again", ClockText(ToTime(job.retry_time()), time.zone)});
  std::string out = absl::StrCat("job ", JobId(job), "\n", RenderFields(fields, style));
  if (!job.epochs().empty()) {
    const EpochTable table = EpochTableOf(job);
    absl::StrAppend(&out, "\n", RenderEpochHeader(table, style), "\n");
    for (const v1::EpochMetrics& epoch : job.epochs())
      absl::StrAppend(&out, RenderEpochRow(ToEpochRow(epoch), table), "\n");
  }
  if (job.has_result()) absl::StrAppend(&out, "\n", RenderResult(job, style));
  return out;
}

std::string RenderResult(const v1::Job& job, const RenderStyle& style) {
  const v1::JobResult& result = job.result();
  const std::string metric = MetricName(job);
  std::vector<Field> fields{{"best epoch", absl::StrCat(result.best_epoch(), " of ", job.spec().epochs())},
                            {absl::StrCat("validation ", metric), MetricText(result.best_valid_metric())},
                            {absl::StrCat("test ", metric, ", best epoch"), MetricText(result.best_test_metric())},
                            {absl::StrCat("test ", metric, ", last epoch"), MetricText(result.final_test_metric())}};
  const auto add = [&fields](const std::string& name, const auto& values, int i) {
    if (i < values.size()) fields.push_back({name, MetricText(values.Get(i).value())});
  };
  for (int i = 1; i < job.spec().metrics_size(); ++i) {
    const std::string other = MetricName(job.spec().metrics(i));
    add(absl::StrCat("validation ", other), result.best_valid_metrics(), i);
    add(absl::StrCat("test ", other, ", best epoch"), result.best_test_metrics(), i);
    add(absl::StrCat("test ", other, ", last epoch"), result.final_test_metrics(), i);
  }
  fields.push_back({"parameters", CountText(result.num_parameters())});
  fields.push_back({"step", absl::StrFormat("%.2f ms", result.mean_step_milliseconds())});
  fields.push_back({"train time", DurationText(absl::Seconds(result.train_seconds()))});
  return absl::StrCat("job ", JobId(job), " ", Paint(StateName(job.state()), StateCell(job.state()).tone, style), "\n",
                      RenderFields(fields, style));
}

}  // namespace permafrost::client
