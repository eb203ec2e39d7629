// Tests charts and reports: their content, and that no text from a server can escape its place in them.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/fake_server.h"
#include "client/line_chart.h"
#include "client/program.h"
#include "client/report_page.h"
#include "client/sample_caches.h"
#include "client/sample_jobs.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "temp_dir.h"

namespace permafrost::client {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const ViewTime kReportTime{absl::FromUnixSeconds(1'773'144'300), absl::UTCTimeZone()};
constexpr double kGap = std::numeric_limits<double>::quiet_NaN();

TEST(LineChart, TicksAreRoundAndWithinTheRange) {
  EXPECT_THAT(TicksOf(0, 10, 5), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(TicksOf(1, 3, 8), ElementsAre(1, 1.5, 2, 2.5, 3));
  EXPECT_THAT(TicksOf(-1, 1, 4), ElementsAre(-1, -0.5, 0, 0.5, 1));
  for (const auto& [low, high] : {std::pair(0.0, 1e-9), std::pair(1e12, 1.1e12), std::pair(-7.3, 0.01)}) {
    const auto ticks = TicksOf(low, high, 5);
    EXPECT_GE(ticks.size(), 2u) << low;
    EXPECT_LE(ticks.size(), 12u) << low;
    for (const double tick : ticks)
      EXPECT_TRUE(tick >= low - (high - low) * 1e-6 && tick <= high + (high - low) * 1e-6);
  }
}

TEST(LineChart, DrawsItsSeriesAndLeavesGapsForWhatIsNoNumber) {
  const Chart chart{.title = "Loss <1>",
                    .x_name = "epoch",
                    .series = {{.name = "train", .points = {{1, 4}, {2, 3}, {3, kGap}, {4, 2}, {5, 1}}},
                               {.name = "validation", .points = {{1, 5}}}}};
  const std::string svg = DrawChart(chart);
  EXPECT_THAT(svg, HasSubstr("Loss &lt;1&gt;"));
  EXPECT_THAT(svg, HasSubstr("class=\"line s1\""));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  std::smatch path;
  ASSERT_TRUE(std::regex_search(svg, path, std::regex("class=\"line s0\" d=\"([^\"]*)\"")));
  const std::string d = path[1];
  EXPECT_EQ(std::ranges::count(d, 'M'), 2) << "a gap: " << d;
  EXPECT_EQ(std::ranges::count(d, 'L'), 2) << d;
}

TEST(LineChart, EpochsAndCountsHaveNoHalves) {
  Chart chart{
      .title = "t", .x_name = "epoch", .series = {{.name = "a", .points = {{1, 0}, {3, 2}}}}, .from_zero = true};
  EXPECT_THAT(DrawChart(chart), HasSubstr(">1.5<")) << "of y";
  chart.counts = true;
  for (const char* half : {">0.5<", ">1.5<", ">2.5<"}) EXPECT_THAT(DrawChart(chart), Not(HasSubstr(half)));
  EXPECT_THAT(DrawChart(chart), HasSubstr(">3<"));
}

TEST(LineChart, NothingToDrawIsNoChart) {
  EXPECT_EQ(DrawChart({.title = "t", .x_name = "x", .series = {}}), "");
  EXPECT_EQ(DrawChart({.title = "t", .x_name = "x", .series = {{.name = "a", .points = {{1, kGap}}}}}), "");
  EXPECT_NE(DrawChart({.title = "t", .x_name = "x", .series = {{.name = "a", .points = {{1, 0}}}}}), "")
      << "one point is one";
}

TEST(LineChart, AMillionPointsAreThinnedAndKeepTheirPeaks) {
  Series series{.name = "a", .points = {}};
  for (int i = 0; i < 1'000'000; ++i) series.points.emplace_back(i, i == 777'777 ? 100 : 1 + (i % 7) * 0.01);
  const std::string svg = DrawChart({.title = "t", .x_name = "x", .series = {series}, .from_zero = true});
  EXPECT_LT(svg.size(), 40'000u);
  // Heights count from the top, so all points but the peak lie at the bottom.
  double top = 1e9;
  const std::regex point("[ML][0-9.]+ ([0-9.]+)");
  for (auto at = std::sregex_iterator(svg.begin(), svg.end(), point); at != std::sregex_iterator(); ++at) {
    top = std::min(top, std::stod((*at)[1]));
  }
  EXPECT_LT(top, 80);
}

ReportData SampleReport() {
  ReportData data;
  data.job = SucceededJob();
  for (int64_t epoch = 1; epoch <= 3; ++epoch) {
    AddEpoch(epoch, data.job);
    v1::MetricValue& value = *data.job.mutable_epochs(static_cast<int>(epoch) - 1)->add_valid_metrics();
    value.set_metric(v1::METRIC_MAE);
    value.set_value(0.7);
  }
  data.cache = FrozenCache();
  v1::GraphCacheEntry entry;
  entry.set_mode(v1::GRAPH_CACHE_MODE_TRAIN);
  entry.set_created_step(7);
  data.entries = {entry, entry};
  v1::Checkpoint checkpoint;
  checkpoint.set_step(300);
  checkpoint.set_state(v1::Checkpoint::STATE_COMPLETE);
  data.checkpoints = {checkpoint};
  return data;
}

TEST(ReportPage, TellsAllThatIsKnown) {
  const std::string page = RenderReport(SampleReport(), kReportTime);
  for (const char* part : {"<h1>zinc-1 <span class=\"state good\">succeeded</span></h1>", "<title>Loss</title>",
                           "<title>Validation MAE</title>", "<title>Graphs a second</title>", "Executables held",
                           "<h2>Graph cache</h2>", "<h2>Checkpoints</h2>", "<h2>Result</h2>", "<h2>Specification</h2>",
                           "<tr><th>optimizer.learning_rate</th><td>0.001</td></tr>", "103,425", "all 3 epochs",
                           "prefers-color-scheme: dark"}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
  EXPECT_THAT(page, Not(HasSubstr("has not ended")));
}

TEST(ReportPage, CountsWhatAWatchOfTheJobCounts) {
  ReportData data = SampleReport();
  data.job.mutable_spec()->mutable_neighbor_sampling()->add_fan_outs(5);
  const std::string of_nodes = RenderReport(data, kReportTime);
  data.job.mutable_spec()->mutable_link_prediction();
  const std::string of_links = RenderReport(data, kReportTime);
  EXPECT_THAT(of_nodes, HasSubstr("<title>Nodes a second</title>"));
  EXPECT_THAT(of_nodes, HasSubstr(">nodes/s<"));
  EXPECT_THAT(of_links, HasSubstr("<title>Links a second</title>"));
  EXPECT_THAT(of_links, HasSubstr(">links/s<"));
}

// Each epoch has 100 steps. Epoch number E replays 3 * E of them padded.
v1::Job JobWithCacheHistory(int64_t first_told, int64_t last) {
  v1::Job job = SucceededJob();
  int64_t padded = 0;
  for (int64_t epoch = 1; epoch <= last; ++epoch) {
    AddEpoch(epoch, job);
    padded += 3 * epoch;
    if (epoch < first_told) continue;
    v1::EpochMetrics& metrics = *job.mutable_epochs(static_cast<int>(epoch) - 1);
    metrics.set_steps(epoch * 100);
    metrics.set_padded_hits(padded);
    metrics.set_exact_hits(epoch * 100 - padded);
    metrics.set_nodes(epoch * 2000);
    metrics.set_edges(epoch * 4000);
    metrics.set_padding_nodes(padded * 10);
    metrics.set_padding_edges(padded * 40);
    metrics.set_cache_bytes(5'000'000 + epoch);
  }
  return job;
}

TEST(CacheHistory, AnEpochsShareIsWhatItAddsToTheEpochBefore) {
  using Points = std::vector<std::pair<double, double>>;
  const std::vector<Chart> charts = CacheHistory(JobWithCacheHistory(/*first_told=*/1, /*last=*/3));
  ASSERT_EQ(charts.size(), 3u);
  EXPECT_EQ(charts[0].series[0].points, (Points{{1, 97}, {2, 94}, {3, 91}}));
  EXPECT_EQ(charts[0].series[1].points, (Points{{1, 3}, {2, 6}, {3, 9}}));
  EXPECT_EQ(charts[1].series[0].points, (Points{{1, 1.5}, {2, 3}, {3, 4.5}}));
  EXPECT_EQ(charts[1].series[1].points, (Points{{1, 3}, {2, 6}, {3, 9}}));
  EXPECT_EQ(charts[2].series[0].points, (Points{{1, 5.000001}, {2, 5.000002}, {3, 5.000003}}));
}

TEST(CacheHistory, EpochsOfAnOlderDaemonHaveNoPoints) {
  // Epoch 2 is the first one with counters. They are totals, so the share of epoch 2 alone is unknown.
  const std::vector<Chart> charts = CacheHistory(JobWithCacheHistory(/*first_told=*/2, /*last=*/3));
  ASSERT_EQ(charts[0].series[1].points.size(), 1u);
  EXPECT_EQ(charts[0].series[1].points[0], (std::pair<double, double>(3, 9)));
  EXPECT_EQ(charts[2].series[0].points.size(), 2u);
  for (const Chart& chart : CacheHistory(JobWithCacheHistory(/*first_told=*/4, /*last=*/3))) {
    EXPECT_EQ(DrawChart(chart), "") << chart.title;
  }
}

TEST(ReportPage, DrawsWhatTheCacheDidInEachEpoch) {
  const char* const kTitles[] = {"<title>Training steps replayed, %</title>", "<title>Rows that padding added, ",
                                 "<title>Graph cache, MB</title>"};
  ReportData data = SampleReport();
  const std::string without = RenderReport(data, kReportTime);
  data.job = JobWithCacheHistory(/*first_told=*/1, /*last=*/3);
  const std::string with = RenderReport(data, kReportTime);
  for (const char* title : kTitles) {
    EXPECT_THAT(without, Not(HasSubstr(title)));
    EXPECT_THAT(with, HasSubstr(title));
  }
}

TEST(ReportPage, AJobThatHasNotBegunHasOneToo) {
  ReportData data;
  data.job = QueuedJob();
  const std::string page = RenderReport(data, kReportTime);
  EXPECT_THAT(page, HasSubstr("as of 2026-03-10 12:05:00; the job has not ended"));
  EXPECT_THAT(page, HasSubstr("No epoch has ended yet."));
  for (const char* part : {"<svg", "<h2>Result", "<h2>Graph cache", "<h2>Checkpoints", "<h2>Plan", "<h2>Epochs"}) {
    EXPECT_THAT(page, Not(HasSubstr(part)));
  }
}

TEST(ReportPage, LoadsNothingAndRunsNothing) {
  const std::string page = RenderReport(SampleReport(), kReportTime);
  for (const char* part : {"http:", "https:", "url(", "@import", "<script", "<link", "<img", "<iframe", "src="}) {
    EXPECT_THAT(page, Not(HasSubstr(part)));
  }
  EXPECT_THAT(page, HasSubstr("default-src 'none'; style-src 'unsafe-inline'"));
}

TEST(ReportPage, WhatAServerSaysIsText) {
  const std::string evil = "<script>alert(\"x\")</script>&'\n";
  const std::string shown = "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;&amp;&#39; ";
  EXPECT_EQ(EscapeHtml(evil), shown);
  ReportData data = SampleReport();
  data.job.set_name("jobs/" + evil);
  data.job.mutable_spec()->set_dataset("datasets/" + evil);
  data.job.set_error(evil);
  data.job.set_last_error(evil);
  (*data.job.mutable_labels())[evil] = evil;
  data.cache->mutable_statistics(0)->set_mode(static_cast<v1::GraphCacheMode>(99));
  data.plan.emplace();
  data.plan->set_recommendation(evil);
  const std::string page = RenderReport(data, kReportTime);
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, HasSubstr(shown));
}

TEST(ReportCommand, WritesTheFileAndDoesWithoutWhatAnOldServerCannotTell) {
  FakeServer fake;
  fake.jobs.get = [](const v1::GetJobRequest& request, v1::Job& job) {
    if (request.name() != "jobs/zinc-1") return grpc::Status(grpc::StatusCode::NOT_FOUND, "no such job");
    job = SucceededJob();
    AddEpoch(1, job);
    return grpc::Status::OK;
  };
  fake.Start();
  const TempDir dir;
  const std::string file = (dir.path() / "r.html").string();
  const ProgramResult written = RunProgram({"--server", fake.address(), "job", "report", "zinc-1", "-o", file});
  EXPECT_EQ(written.exit_code, 0) << written.err;
  EXPECT_EQ(written.out, absl::StrCat("wrote ", file, "\n"));
  std::ifstream in(file);
  const std::string page{std::istreambuf_iterator<char>(in), {}};
  EXPECT_THAT(page, HasSubstr("<title>Loss</title>"));
  EXPECT_THAT(page, testing::EndsWith("</html>\n"));
  const ProgramResult as_json =
      RunProgram({"--server", fake.address(), "job", "report", "zinc-1", "-o", file, "--output", "json"});
  EXPECT_EQ(nlohmann::json::parse(as_json.out), (nlohmann::json{{"file", file}}));
  EXPECT_THAT(RunProgram({"--server", fake.address(), "job", "report", "zinc-1", "-o", "-"}).out,
              testing::StartsWith("<!DOCTYPE html>"));
  for (const char* flag : {"--to", "--out"}) {
    const std::string named = (dir.path() / absl::StrCat(flag + 2, ".html")).string();
    EXPECT_EQ(RunProgram({"--server", fake.address(), "job", "report", "zinc-1", flag, named}).out,
              absl::StrCat("wrote ", named, "\n"))
        << flag;
    EXPECT_GT(std::filesystem::file_size(named), 0U) << flag;
  }
  EXPECT_EQ(RunProgram({"--server", fake.address(), "job", "report", "none", "-o", file}).exit_code, 4);
  EXPECT_EQ(RunProgram({"--server", fake.address(), "job", "report", "zinc-1", "-o", "/nonexistent/r.html"}).exit_code,
            5);
}

}  // namespace
}  // namespace permafrost::client
