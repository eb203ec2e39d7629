#include "client/job_view.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cache_view.h"
#include "client/format.h"
#include "client/spec_view.h"
#include "client/style.h"
#include "google/rpc/error_details.pb.h"
#include "permafrost/v1/enum_text.h"
#include "spec/loss.h"

namespace permafrost::client {
namespace {

// Returns the row for the value of an API enum, or the first row if this version does not know the value.
template <class Rows>
const auto& TraitsOfWire(const Rows& rows, const google::protobuf::EnumDescriptor& type, int value) {
  const auto found = std::ranges::find_if(rows, [&](const auto& row) { return ParseEnum(type, row.name) == value; });
  return found == rows.end() ? rows.front() : *found;
}

std::string RankText(const v1::RankProgress& rank) {
  const std::string where = rank.address().empty() ? "the leader" : OneLine(rank.address());
  if (rank.steps() == 0) return absl::StrCat(where, ": no step yet");
  const double a_step = 1e3 / static_cast<double>(rank.steps());
  return absl::StrFormat("%s: %s steps, %.2f ms each to compute and %.2f ms to exchange", where,
                         CountText(rank.steps()), (rank.seconds() - rank.exchange_seconds()) * a_step,
                         rank.exchange_seconds() * a_step);
}

std::string JobId(const v1::Job& job) { return std::string(StripCollection("jobs", job.name())); }

std::string BestValidText(const v1::Job& job) {
  if (!job.has_result()) return kNothing;
  return absl::StrCat(MetricName(job), " ", MetricText(job.result().best_valid_metric()));
}

// Returns the unit of the job's count of graphs: "graphs" or, on one large graph, "nodes" (seed nodes) or "links".
std::string Unit(const v1::Job& job) {
  if (job.spec().has_link_prediction()) return "links";
  return IsNodeLevel(job) ? "nodes" : "graphs";
}

// The units in which a job's counts of nodes and edges are shown. A node2vec job counts entries of walks as nodes,
// and pairs within a window as edges.
struct RowUnits {
  std::string nodes = "nodes", edges = "edges";
};
RowUnits RowUnitsOf(const v1::Job& job) {
  return job.spec().has_node2vec() ? RowUnits{.nodes = "entries of walks", .edges = "pairs"} : RowUnits();
}

// Shows the state of the sampler that runs ahead, and whether memory and disk keep up with it.
void AddLookAhead(const v1::Progress& progress, std::vector<Field>& fields) {
  const v1::LookAhead& ahead = progress.look_ahead();
  fields.push_back(
      {"look-ahead",
       absl::StrCat(ahead.ready(), " of ", ahead.depth(), " batches ready, ", CountText(ahead.stalls()),
                    ahead.stalls() == 1 ? " stall, " : " stalls, ", CountText(ahead.sampled_edges()), " edges sampled",
                    ahead.cut_batches() > 0
                        ? absl::StrCat(", ", CountText(ahead.cut_batches()), " batches cut to the budget")
                        : "")});
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

void AddLimits(const v1::JobSpec& spec, const ViewTime& time, std::vector<Field>& fields) {
  if (spec.has_max_runtime()) fields.push_back({"max runtime", DurationText(ToDuration(spec.max_runtime()))});
  if (spec.has_deadline()) fields.push_back({"deadline", ClockText(ToTime(spec.deadline()), time.zone)});
  if (spec.max_retries() > 0) fields.push_back({"max retries", CountText(spec.max_retries())});
}

// Shows the time that the job spent in each state, and the reason why it entered the state.
std::string RenderStateChanges(const v1::Job& job, const ViewTime& time, const RenderStyle& style) {
  std::vector<std::vector<Cell>> rows;
  rows.reserve(static_cast<size_t>(job.state_changes_size()));
  for (int i = 0; i < job.state_changes_size(); ++i) {
    const v1::StateChange& change = job.state_changes(i);
    const bool last = i + 1 == job.state_changes_size();
    const absl::Time until = last ? time.now : ToTime(job.state_changes(i + 1).time());
    rows.push_back({StateCell(change.state()), ClockText(ToTime(change.time()), time.zone),
                    last && IsTerminal(change.state()) ? kNothing : DurationText(until - ToTime(change.time())),
                    OneLine(change.reason()), change.message().empty() ? kNothing : OneLine(change.message())});
  }
  std::string out = RenderTable({{"STATE"}, {"SINCE"}, {"FOR", Align::kRight}, {"REASON"}, {"WHAT"}}, rows, style);
  if (job.dropped_state_changes() > 0) {
    out = absl::StrCat(CountText(job.dropped_state_changes()), " older changes are not kept\n", out);
  }
  return out;
}

// Returns the time from the first start until the end or, for an unfinished job, until now.
std::string RunTimeText(const v1::Job& job, absl::Time now) {
  if (!job.has_start_time()) return kNothing;
  return DurationText((job.has_end_time() ? ToTime(job.end_time()) : now) - ToTime(job.start_time()));
}

void AddProgress(const v1::Job& job, std::vector<Field>& fields) {
  const v1::Progress& progress = job.progress();
  fields.push_back({"epoch", EpochText(job)});
  if (progress.step() == 0) return;
  fields.push_back({"steps", absl::StrCat(CountText(progress.step()), " of ",
                                          CountText(progress.steps_per_epoch() * job.spec().epochs()))});
  const RowUnits rows = RowUnitsOf(job);
  fields.push_back(
      {"trained on", absl::StrCat(CountText(progress.graphs()), Unit(job) == "nodes" ? " seed " : " ", Unit(job), ", ",
                                  CountText(progress.nodes()), " ", rows.nodes, ", ", CountText(progress.edges()), " ",
                                  rows.edges, progress.has_exchange() ? " (the leader's share)" : "")});
  if (progress.skipped_batches() > 0) {
    fields.push_back({"skipped", absl::StrCat(CountText(progress.skipped_batches()), " batches that were not finite")});
  }
  fields.push_back({"padding", absl::StrCat(CountText(progress.padding_nodes()), " ", rows.nodes, ", ",
                                            CountText(progress.padding_edges()), " ", rows.edges)});
  const v1::PhaseSeconds& phase = progress.phase_seconds();
  fields.push_back({"time by phase", absl::StrCat("batch ", DurationText(absl::Seconds(phase.batch())), ", forward ",
                                                  DurationText(absl::Seconds(phase.forward())), ", backward ",
                                                  DurationText(absl::Seconds(phase.backward())), ", optimizer ",
                                                  DurationText(absl::Seconds(phase.optimizer())))});
  if (progress.has_exchange()) {
    const v1::Exchange& exchange = progress.exchange();
    const std::string with = absl::StrCat(
        "with ", CountText(exchange.replicas() - 1), " other ", exchange.replicas() == 2 ? "daemon" : "daemons", ", ",
        CountText(exchange.exchanges()), " times in ", DurationText(absl::Seconds(exchange.seconds())), ", ",
        BytesText(exchange.sent_bytes()), " sent");
    fields.push_back({"exchange", exchange.replicas() > 1 ? with : "none: no other daemon is free"});
    for (int r = 0; r < exchange.ranks_size(); ++r) {
      fields.push_back({absl::StrCat("rank ", r), RankText(exchange.ranks(r))});
    }
  }
  if (progress.has_look_ahead()) AddLookAhead(progress, fields);
  if (!IsOnDevice(job.state())) return;
  fields.push_back({"speed", absl::StrCat(ShortText(progress.graphs_per_second()), " ", Unit(job), "/s")});
  if (progress.has_eta()) fields.push_back({"ETA", EtaText(ToDuration(progress.eta()))});
}

std::string BatchSizeText(const v1::JobSpec& spec) {
  if (spec.has_neighbor_sampling() && spec.neighbor_sampling().fan_outs().empty()) return "the whole graph";
  return HasOnlyBudget(spec) ? "as many graphs as the budget holds" : CountText(spec.batch_size());
}

// Lists the metrics. The first one chooses the best epoch.
std::string MetricsText(const v1::Job& job) {
  if (job.spec().metrics().empty()) return MetricName(job);
  return absl::StrJoin(job.spec().metrics(), ", ", [](std::string* out, int metric) {
    absl::StrAppend(out, MetricName(static_cast<v1::Metric>(metric)));
  });
}

}  // namespace

std::string WhenText(const google::protobuf::Timestamp& wire, const ViewTime& time) {
  const absl::Time t = ToTime(wire);
  return absl::StrCat(ClockText(t, time.zone), " (", AgeText(t, time.now, time.zone), ")");
}

bool IsTerminal(v1::Job::State state) {
  return state == v1::Job::STATE_SUCCEEDED || state == v1::Job::STATE_FAILED || state == v1::Job::STATE_CANCELLED;
}

bool IsOnDevice(v1::Job::State state) {
  switch (state) {
    case v1::Job::STATE_PREPARING:
    case v1::Job::STATE_WARMING_UP:
    case v1::Job::STATE_RECOVERING:
    case v1::Job::STATE_RUNNING:
    case v1::Job::STATE_CANCELLING:
      return true;
    default:
      return false;
  }
}

Cell StateCell(v1::Job::State state) {
  switch (state) {
    case v1::Job::STATE_PREPARING:
    case v1::Job::STATE_WARMING_UP:
    case v1::Job::STATE_RUNNING:
    case v1::Job::STATE_SUCCEEDED:
      return {StateName(state), Tone::kGood};
    case v1::Job::STATE_RECOVERING:
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

std::string EpochText(const v1::Job& job) {
  const int64_t epoch = job.progress().epoch();
  return epoch == 0 ? absl::StrCat("-/", job.spec().epochs()) : absl::StrCat(epoch, "/", job.spec().epochs());
}

std::string StateName(v1::Job::State state) { return EnumShortName(*v1::Job::State_descriptor(), state); }

std::string ErrorReason(const v1::Job& job) {
  google::rpc::ErrorInfo info;
  for (const google::protobuf::Any& detail : job.error_status().details()) {
    if (detail.UnpackTo(&info)) return info.reason();
  }
  return "";
}

std::string MetricName(v1::Metric metric) {
  return std::string(TraitsOfWire(spec::kMetrics, *v1::Metric_descriptor(), metric).title);
}

std::string MetricName(const v1::Job& job) {
  if (!job.spec().metrics().empty()) return MetricName(job.spec().metrics(0));
  if (job.spec().has_link_prediction()) return MetricName(v1::METRIC_MRR);
  const auto& loss = TraitsOfWire(spec::kLosses, *v1::JobSpec::Loss_descriptor(), job.spec().loss());
  return std::string(spec::TraitsOf(loss.metric).title);
}

// The daemon describes neighbour sampling for node-level jobs only.
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
      {"state", job.pausing() ? Cell(StateName(job.state()) + ", pauses at its next step", Tone::kWarn)
                              : StateCell(job.state())},
      {"dataset", std::string(StripCollection("datasets", spec.dataset()))},
      {"model", ModelText(job)},
      {"optimizer", OptimizerText(spec.optimizer())},
      {"loss", LossText(spec)},
      {"metrics", MetricsText(job)},
      {"batch size", BatchSizeText(spec)},
      {"seed", absl::StrCat(spec.seed())},
      {"priority", absl::StrCat(spec.priority())},
      {"checkpoints", CheckpointText(job)},
  };
  if (spec.patience() > 0) {
    fields.push_back({"patience", absl::StrCat(CountText(spec.patience()), " epochs without a better validation")});
  }
  if (spec.non_finite() > v1::JobSpec::NON_FINITE_FAIL) {
    fields.push_back({"non-finite", EnumShortName(*v1::JobSpec::NonFinite_descriptor(), spec.non_finite())});
  }
  AddLimits(spec, time, fields);
  if (!job.labels().empty()) fields.push_back({"labels", OneLine(LabelsText(job.labels()))});
  if (spec.has_init_from()) fields.push_back({"begins with", InitText(spec.init_from())});
  if (spec.fixed_parameters_size() > 0) {
    fields.push_back({"not trained", OneLine(absl::StrJoin(spec.fixed_parameters(), ", "))});
  }
  if (spec.cross_validation().folds() > 0) {
    const v1::CrossValidation& folds = spec.cross_validation();
    fields.push_back({"fold", absl::StrCat(folds.fold(), " of ", folds.folds(), ", seed ", folds.seed())});
  }
  if (spec.replicas() > 1) {
    const bool is_elastic = spec.min_replicas() > 0 && spec.min_replicas() < spec.replicas();
    fields.push_back({"replicas", absl::StrCat(is_elastic ? absl::StrCat(spec.min_replicas(), " to ") : "",
                                               spec.replicas(), " daemons",
                                               spec.exchange_precision() == v1::ModelSpec::PRECISION_BFLOAT16
                                                   ? ", gradients exchanged in bfloat16"
                                                   : "")});
  }
  if (spec.batching().kind() > v1::Batching::KIND_RANDOM) fields.push_back({"batching", BatchingText(spec.batching())});
  if (spec.has_link_prediction()) fields.push_back({"links", LinkText(spec.link_prediction())});
  if (spec.has_node2vec()) {
    fields.push_back({"walks", WalkText(spec.node2vec())});
  } else if (spec.has_neighbor_sampling()) {
    fields.push_back({"sampling", SamplingText(spec.neighbor_sampling())});
  }
  if (spec.has_graph_cache()) fields.push_back({"graph cache", PolicyText(spec.graph_cache())});
  if (job.has_create_time()) fields.push_back({"created", WhenText(job.create_time(), time)});
  if (job.has_start_time()) fields.push_back({"started", WhenText(job.start_time(), time)});
  if (job.has_end_time()) fields.push_back({"ended", WhenText(job.end_time(), time)});
  if (job.has_device_time()) {
    fields.push_back({"time on device", DurationText(ToDuration(job.device_time()))});
  }
  if (job.resumes() > 0) fields.push_back({"resumes", absl::StrCat(job.resumes())});
  AddProgress(job, fields);
  for (const std::string& note : job.notes()) fields.push_back({"note", {OneLine(note), Tone::kWarn}});
  if (!job.error().empty()) fields.push_back({"error", {job.error(), Tone::kBad}});
  if (const std::string reason = ErrorReason(job); !reason.empty()) fields.push_back({"reason", OneLine(reason)});
  if (!job.last_error().empty()) fields.push_back({"last error", {job.last_error(), Tone::kWarn}});
  if (job.has_retry_time()) fields.push_back({"runs again", ClockText(ToTime(job.retry_time()), time.zone)});
  std::string out = absl::StrCat("job ", JobId(job), "\n", RenderFields(fields, style));
  if (!job.state_changes().empty()) absl::StrAppend(&out, "\n", RenderStateChanges(job, time, style));
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
  if (result.unranked_valid_links() > 0 || result.unranked_test_links() > 0) {
    fields.push_back(
        {"links without a rank", absl::StrCat(CountText(result.unranked_valid_links()), " to validate on, ",
                                              CountText(result.unranked_test_links()), " to test on")});
  }
  fields.push_back({"parameters", CountText(result.num_parameters())});
  fields.push_back({"step", absl::StrFormat("%.2f ms", result.mean_step_milliseconds())});
  fields.push_back({"train time", DurationText(absl::Seconds(result.train_seconds()))});
  return absl::StrCat("job ", JobId(job), " ", Paint(StateName(job.state()), StateCell(job.state()).tone, style), "\n",
                      RenderFields(fields, style));
}

}  // namespace permafrost::client
