#include "client/report_page.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cache_view.h"
#include "client/format.h"
#include "client/line_chart.h"
#include "client/message_fields.h"
#include "client/plan_view.h"
#include "permafrost/v1/enum_text.h"

namespace permafrost::client {
namespace {

// The table of epochs shows at most this many of the last epochs.
constexpr int kMaxEpochRows = 1000;

constexpr char kStyle[] = R"css(
:root { color-scheme: light dark; --fg: #1d2430; --muted: #5b6675; --bg: #ffffff; --panel: #f5f7fa; --line: #d9dfe7;
  --c0: #1f6fb2; --c1: #c2571a; --c2: #2f8a4c; --c3: #8250a8; --good: #1a7f37; --warn: #9a6700; --bad: #b42318; }
@media (prefers-color-scheme: dark) { :root { --fg: #e3e8ef; --muted: #97a3b3; --bg: #12161c; --panel: #1b212a;
  --line: #323b48; --c0: #64adea; --c1: #f0965a; --c2: #6cc78a; --c3: #c49be6; --good: #57c278; --warn: #e0b03f;
  --bad: #ff8577; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 28px 24px 64px; max-width: 1180px; background: var(--bg); color: var(--fg);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 26px; line-height: 1.25; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 34px 0 10px; }
p { margin: 4px 0; } .muted { color: var(--muted); }
.state { font-size: 14px; font-weight: 600; padding: 2px 10px; border: 1px solid; border-radius: 12px;
  vertical-align: 4px; margin-left: 10px; white-space: nowrap; }
.good { color: var(--good); } .warn { color: var(--warn); } .bad { color: var(--bad); }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 480px), 1fr)); gap: 16px; }
.chart { width: 100%; height: auto; background: var(--panel); border: 1px solid var(--line); border-radius: 8px; padding: 8px; }
.chart text { font: 12px system-ui, sans-serif; fill: var(--muted); }
.chart .title { font-size: 14px; font-weight: 600; fill: var(--fg); }
.grid { stroke: var(--line); stroke-width: 1; } .axis { stroke: var(--muted); stroke-width: 1; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.line.s0 { stroke: var(--c0); } .line.s1 { stroke: var(--c1); } .line.s2 { stroke: var(--c2); } .line.s3 { stroke: var(--c3); }
.dot.s0, .key.s0 { fill: var(--c0); } .dot.s1, .key.s1 { fill: var(--c1); } .dot.s2, .key.s2 { fill: var(--c2); }
.dot.s3, .key.s3 { fill: var(--c3); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 4px 18px 4px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { font-weight: 600; color: var(--muted); white-space: nowrap; } td { overflow-wrap: anywhere; } td.n, th.n { text-align: right; white-space: nowrap; overflow-wrap: normal; }
.two { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); gap: 8px 32px; align-items: start; }
pre { background: var(--panel); border: 1px solid var(--line); border-radius: 8px; padding: 12px; overflow-x: auto;
  font: 12.5px/1.45 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
summary { cursor: pointer; color: var(--muted); }
@media print { body { max-width: none; } .chart { break-inside: avoid; } }
)css";

using NamedTexts = std::vector<std::pair<std::string, std::string>>;

// Makes a table of names and values. Both are plain text.
std::string FieldTable(const NamedTexts& fields) {
  std::string out = "<table>\n";
  for (const auto& [name, value] : fields) {
    absl::StrAppend(&out, "<tr><th>", EscapeHtml(name), "</th><td>", EscapeHtml(value), "</td></tr>\n");
  }
  return out + "</table>\n";
}

// Makes a table of numbers under plain-text headers.
std::string NumberTable(const std::vector<std::string>& headers, const std::vector<std::vector<std::string>>& rows) {
  std::string out = "<div class=\"wide\"><table>\n<tr>";
  for (const std::string& header : headers) absl::StrAppend(&out, "<th class=\"n\">", EscapeHtml(header), "</th>");
  out += "</tr>\n";
  for (const std::vector<std::string>& row : rows) {
    out += "<tr>";
    for (const std::string& cell : row) absl::StrAppend(&out, "<td class=\"n\">", EscapeHtml(cell), "</td>");
    out += "</tr>\n";
  }
  return out + "</table></div>\n";
}

std::string Section(const std::string& title, const std::string& body) {
  return body.empty() ? "" : absl::StrCat("<h2>", EscapeHtml(title), "</h2>\n", body);
}

const char* StateClass(v1::Job::State state) {
  if (state == v1::Job::STATE_FAILED) return "bad";
  return state == v1::Job::STATE_SUCCEEDED || IsOnDevice(state) ? "good" : "warn";
}

std::string Header(const v1::Job& job, const ViewTime& time) {
  std::string out = absl::StrFormat("<h1>%s <span class=\"state %s\">%s</span></h1>\n",
                                    EscapeHtml(std::string(StripCollection("jobs", job.name()))),
                                    StateClass(job.state()), EscapeHtml(StateName(job.state())));
  absl::StrAppend(&out, "<p class=\"muted\">as of ", EscapeHtml(ClockText(time.now, time.zone)),
                  IsTerminal(job.state()) ? "" : "; the job has not ended", "</p>\n");
  for (const std::string& error : {job.error(), job.last_error()}) {
    if (!error.empty()) absl::StrAppend(&out, "<p class=\"bad\">", EscapeHtml(error), "</p>\n");
  }
  return out;
}

std::string Summary(const v1::Job& job, const ViewTime& time) {
  const v1::Progress& progress = job.progress();
  NamedTexts fields{{"dataset", std::string(StripCollection("datasets", job.spec().dataset()))}};
  if (!job.labels().empty()) fields.emplace_back("labels", LabelsText(job.labels()));
  fields.emplace_back("epochs", absl::StrCat(CountText(job.epochs_size()), " of ", CountText(job.spec().epochs())));
  fields.emplace_back("steps", CountText(progress.step()));
  const auto add_time = [&](const char* name, bool there, const google::protobuf::Timestamp& t) {
    if (there) fields.emplace_back(name, ClockText(ToTime(t), time.zone));
  };
  add_time("created", job.has_create_time(), job.create_time());
  add_time("started", job.has_start_time(), job.start_time());
  add_time("ended", job.has_end_time(), job.end_time());
  if (job.resumes() > 0) fields.emplace_back("resumes", CountText(job.resumes()));
  if (progress.step() > 0) {
    const v1::PhaseSeconds& phase = progress.phase_seconds();
    fields.emplace_back("time by phase, this run",
                        absl::StrCat("batch ", DurationText(absl::Seconds(phase.batch())), ", forward ",
                                     DurationText(absl::Seconds(phase.forward())), ", backward ",
                                     DurationText(absl::Seconds(phase.backward())), ", optimizer ",
                                     DurationText(absl::Seconds(phase.optimizer()))));
  }
  return FieldTable(fields);
}

std::string ResultTable(const v1::Job& job) {
  if (!job.has_result()) return "";
  const v1::JobResult& result = job.result();
  NamedTexts fields{{"best epoch", CountText(result.best_epoch())}};
  const auto add = [&fields](const char* what, const char* when, const auto& values) {
    for (const v1::MetricValue& value : values) {
      fields.emplace_back(absl::StrCat(what, " ", MetricName(value.metric()), when), MetricText(value.value()));
    }
  };
  add("validation", ", best epoch", result.best_valid_metrics());
  add("test", ", best epoch", result.best_test_metrics());
  add("test", ", last epoch", result.final_test_metrics());
  fields.emplace_back("test loss, best epoch", MetricText(result.best_test_loss()));
  fields.emplace_back("parameters", CountText(result.num_parameters()));
  fields.emplace_back("mean step", absl::StrFormat("%.2f ms", result.mean_step_milliseconds()));
  fields.emplace_back("train time", DurationText(absl::Seconds(result.train_seconds())));
  return FieldTable(fields);
}

std::string TrainingCharts(const v1::Job& job) {
  Chart loss{.title = "Loss",
             .x_name = "epoch",
             .series = {{.name = "train", .points = {}}, {.name = "validation", .points = {}}}};
  Chart rate{.title = "Learning rate",
             .x_name = "epoch",
             .series = {{.name = "learning rate", .points = {}}},
             .from_zero = true};
  std::string unit = EpochTableOf(job).unit;
  unit[0] = absl::ascii_toupper(static_cast<unsigned char>(unit[0]));
  Chart speed{.title = absl::StrCat(unit, " a second"),
              .x_name = "seconds of training and evaluation",
              .series = {{.name = "throughput", .points = {}}},
              .from_zero = true};
  std::map<v1::Metric, Chart> metrics;
  std::vector<v1::Metric> order;
  double seconds = 0;
  for (const v1::EpochMetrics& epoch : job.epochs()) {
    const auto x = static_cast<double>(epoch.epoch());
    seconds += epoch.train_seconds() + epoch.valid_seconds();
    loss.series[0].points.emplace_back(x, epoch.train_loss());
    loss.series[1].points.emplace_back(x, epoch.valid_loss());
    rate.series[0].points.emplace_back(x, epoch.learning_rate());
    speed.series[0].points.emplace_back(seconds, epoch.graphs_per_second());
    for (const v1::MetricValue& value : epoch.valid_metrics()) {
      if (!metrics.contains(value.metric())) {
        order.push_back(value.metric());
        metrics[value.metric()] = {.title = absl::StrCat("Validation ", MetricName(value.metric())),
                                   .x_name = "epoch",
                                   .series = {{.name = MetricName(value.metric()), .points = {}}}};
      }
      metrics[value.metric()].series[0].points.emplace_back(x, value.value());
    }
  }
  std::string drawn = DrawChart(loss);
  for (const v1::Metric metric : order) drawn += DrawChart(metrics[metric]);
  drawn += DrawChart(speed);
  const auto& rates = rate.series[0].points;
  const auto differs = [&rates](const auto& point) { return point.second != rates.front().second; };
  if (std::ranges::any_of(rates, differs)) drawn += DrawChart(rate);
  return drawn.empty() ? "<p class=\"muted\">No epoch has ended yet.</p>\n"
                       : absl::StrCat("<div class=\"charts\">\n", drawn, "</div>\n");
}

// Makes a chart of the number of held executables by step. Each executable counts from the step that captured it.
Chart CacheGrowth(const ReportData& data) {
  Chart chart{.title = "Executables held, by the step that captured them",
              .x_name = "step",
              .series = {},
              .from_zero = true,
              .counts = true};
  for (const auto& [mode, name] :
       {std::pair(v1::GRAPH_CACHE_MODE_TRAIN, "training"), std::pair(v1::GRAPH_CACHE_MODE_EVAL, "evaluation")}) {
    std::vector<double> at;
    for (const v1::GraphCacheEntry& entry : data.entries) {
      if (entry.mode() == mode) at.push_back(static_cast<double>(entry.created_step()));
    }
    if (at.empty()) continue;
    std::ranges::sort(at);
    Series series{.name = name, .points = {}, .steps = true};
    for (size_t i = 0; i < at.size(); ++i) {
      if (!series.points.empty() && series.points.back().first == at[i]) series.points.pop_back();
      series.points.emplace_back(at[i], static_cast<double>(i + 1));
    }
    series.points.emplace_back(std::max(at.back(), static_cast<double>(data.job.progress().step())),
                               static_cast<double>(at.size()));
    chart.series.push_back(std::move(series));
  }
  return chart;
}

std::string CacheSection(const ReportData& data) {
  if (!data.cache) return "";
  const v1::GraphCache& cache = *data.cache;
  NamedTexts fields{{"policy", PolicyText(cache.policy(), cache.freeze_at())},
                    {"frozen", cache.frozen() ? absl::StrCat("at step ", CountText(cache.freeze_step())) : "no"},
                    {"size", CacheSizeText(cache)}};
  std::vector<std::vector<std::string>> rows;
  rows.reserve(static_cast<size_t>(cache.statistics_size()));
  for (const v1::GraphCacheStatistics& s : cache.statistics()) {
    const int64_t steps = s.hits() + s.padded_hits() + s.misses();
    rows.push_back({EnumShortName(*v1::GraphCacheMode_descriptor(), s.mode()), CountText(steps),
                    ShareText(s.hits(), steps), ShareText(s.padded_hits(), steps), CountText(s.misses()),
                    CountText(s.captures()), CountText(s.frozen_captures()), CountText(s.eager_steps()),
                    ShareText(s.padding_nodes(), s.nodes()), BytesText(s.entry_bytes())});
  }
  std::string out = FieldTable(fields);
  absl::StrAppend(&out, "<br>\n",
                  NumberTable({"steps of", "steps", "exact hits", "padded hits", "misses", "captures", "while frozen",
                               "eager steps", "nodes added", "bytes"},
                              rows));
  std::string charts = DrawChart(CacheGrowth(data));
  for (const Chart& chart : CacheHistory(data.job)) charts += DrawChart(chart);
  if (!charts.empty()) absl::StrAppend(&out, "<br>\n<div class=\"charts\">\n", charts, "</div>\n");
  return out;
}

std::string CheckpointTable(const ReportData& data, const ViewTime& time) {
  if (data.checkpoints.empty()) return "";
  std::vector<std::vector<std::string>> rows;
  rows.reserve(data.checkpoints.size());
  for (const v1::Checkpoint& c : data.checkpoints) {
    rows.push_back({CountText(c.step()), CountText(c.epoch()),
                    EnumShortName(*v1::Checkpoint::State_descriptor(), c.state()), BytesText(c.total_bytes()),
                    c.has_create_time() ? ClockText(ToTime(c.create_time()), time.zone) : kNothing});
  }
  return NumberTable({"step", "epoch", "state", "size", "written"}, rows);
}

std::string EpochSection(const v1::Job& job) {
  if (job.epochs().empty()) return "";
  std::vector<std::string> headers{"epoch", "train loss", "valid loss"};
  for (const v1::MetricValue& value : job.epochs().rbegin()->valid_metrics()) {
    headers.push_back(absl::StrCat("valid ", MetricName(value.metric())));
  }
  for (const char* header : {"learning rate", "train s", "valid s"}) headers.emplace_back(header);
  headers.push_back(absl::StrCat(EpochTableOf(job).unit, "/s"));
  const size_t metrics = headers.size() - 7;
  std::vector<std::vector<std::string>> rows;
  for (int i = std::max(0, job.epochs_size() - kMaxEpochRows); i < job.epochs_size(); ++i) {
    const v1::EpochMetrics& e = job.epochs(i);
    std::vector<std::string> row{CountText(e.epoch()), MetricText(e.train_loss()), MetricText(e.valid_loss())};
    for (size_t m = 0; m < metrics; ++m) {
      const auto at = static_cast<int>(m);
      row.push_back(at < e.valid_metrics_size() ? MetricText(e.valid_metrics(at).value()) : kNothing);
    }
    row.insert(row.end(), {ExactText(e.learning_rate()), absl::StrFormat("%.3g", e.train_seconds()),
                           absl::StrFormat("%.3g", e.valid_seconds()), ShortText(e.graphs_per_second())});
    rows.push_back(std::move(row));
  }
  const std::string which =
      job.epochs_size() > kMaxEpochRows
          ? absl::StrCat("the last ", CountText(kMaxEpochRows), " of ", CountText(job.epochs_size()), " epochs")
          : absl::StrCat("all ", CountText(job.epochs_size()), " epochs");
  return absl::StrCat("<details><summary>", which, "</summary>\n", NumberTable(headers, rows), "</details>\n");
}

std::string PlanSection(const ReportData& data) {
  if (!data.plan) return "";
  const std::string subject = std::string(StripCollection("datasets", data.job.spec().dataset()));
  const std::string text = RenderPlan(*data.plan, subject, RenderStyle());
  // Escapes line by line, because escaping removes line breaks.
  std::string out = "<pre>";
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    absl::StrAppend(&out, EscapeHtml(text.substr(begin, end - begin)), "\n");
    begin = end + 1;
  }
  return out + "</pre>\n";
}

}  // namespace

std::string RenderReport(const ReportData& data, const ViewTime& time) {
  const v1::Job& job = data.job;
  std::string out = absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'\">\n<title>",
      EscapeHtml(std::string(StripCollection("jobs", job.name()))), "</title>\n<style>", kStyle,
      "</style>\n</head>\n<body>\n", Header(job, time));
  absl::StrAppend(&out, "<div class=\"two\">\n<div>", Section("Job", Summary(job, time)), "</div>\n<div>",
                  Section("Result", ResultTable(job)), "</div>\n</div>\n");
  absl::StrAppend(&out, Section("Training", TrainingCharts(job)), Section("Epochs", EpochSection(job)),
                  Section("Graph cache", CacheSection(data)), Section("Plan", PlanSection(data)),
                  Section("Checkpoints", CheckpointTable(data, time)),
                  Section("Specification", FieldTable(MessageFields(job.spec()))));
  return out + "</body>\n</html>\n";
}

namespace {

constexpr double kBytesPerMegabyte = 1e6;

double Percent(int64_t part, int64_t whole) {
  return whole > 0 ? 100 * static_cast<double>(part) / static_cast<double>(whole) : 0;
}

}  // namespace

std::vector<Chart> CacheHistory(const v1::Job& job) {
  Chart replays{
      .title = "Training steps replayed, %",
      .x_name = "epoch",
      .series = {{.name = "at their shape", .points = {}}, {.name = "padded", .points = {}}},
      .from_zero = true,
  };
  Chart padding{
      .title = "Rows that padding added, % of the batches' own",
      .x_name = "epoch",
      .series = {{.name = "nodes", .points = {}}, {.name = "edges", .points = {}}},
      .from_zero = true,
  };
  Chart bytes{
      .title = "Graph cache, MB",
      .x_name = "epoch",
      .series = {{.name = "executables and their arena", .points = {}}},
      .from_zero = true,
  };
  const v1::EpochMetrics nothing;
  // The counters are sums since the job's first step. An epoch's own share is the difference from the previous epoch.
  const v1::EpochMetrics* before = &nothing;
  for (const v1::EpochMetrics& epoch : job.epochs()) {
    const bool follows = epoch.epoch() == before->epoch() + 1 && (before == &nothing || before->steps() > 0);
    const int64_t steps = epoch.steps() - before->steps();
    if (epoch.steps() > 0) {
      const auto x = static_cast<double>(epoch.epoch());
      bytes.series[0].points.emplace_back(x, static_cast<double>(epoch.cache_bytes()) / kBytesPerMegabyte);
      if (follows && steps > 0) {
        replays.series[0].points.emplace_back(x, Percent(epoch.exact_hits() - before->exact_hits(), steps));
        replays.series[1].points.emplace_back(x, Percent(epoch.padded_hits() - before->padded_hits(), steps));
        padding.series[0].points.emplace_back(
            x, Percent(epoch.padding_nodes() - before->padding_nodes(), epoch.nodes() - before->nodes()));
        padding.series[1].points.emplace_back(
            x, Percent(epoch.padding_edges() - before->padding_edges(), epoch.edges() - before->edges()));
      }
    }
    before = &epoch;
  }
  return {replays, padding, bytes};
}

}  // namespace permafrost::client
