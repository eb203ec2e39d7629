// `permafrost dataset sample` and `dataset plan`: what jobs would read from a dataset.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands.h"
#include "client/format.h"
#include "client/sampling_view.h"
#include "client/spec_rows.h"
#include "permafrost/v1/dataset.grpc.pb.h"
#include "spec/sampling.h"
#include "spec/train_options.h"

namespace permafrost::client {
namespace {

struct SampleFlags {
  std::string name;
  SpecFlags draw{DrawRows()};
  int64_t max_nodes = 0, max_edges = 0;
  SpecFlags walk{WalkRows()};
  std::vector<uint32_t> nodes;
  std::vector<std::string> names;
  std::optional<int64_t> count;
  uint64_t seed = 0;
};

ExitCode Sample(Session& session, const SampleFlags& flags) {
  const std::vector<SpecSetting> draw = flags.draw.Given();
  const std::vector<SpecSetting> walk = flags.walk.Given();
  if (draw.empty() && walk.empty())
    return session.Fail(UsageFailure("--fan-out or --walk is missing: say what to draw, as --fan-out 15,10"));
  v1::SampleDatasetRequest request;
  request.set_name(WithCollection("datasets", flags.name));
  request.mutable_nodes()->Add(flags.nodes.begin(), flags.nodes.end());
  request.mutable_names()->Add(flags.names.begin(), flags.names.end());
  if (flags.count) request.set_count(*flags.count);
  request.set_seed(flags.seed);
  for (const SpecSetting& setting : walk) setting.Apply(*request.mutable_walk());
  if (walk.empty()) {
    v1::SampleDatasetRequest::Neighbors& neighbors = *request.mutable_neighbors();
    for (const SpecSetting& setting : draw) setting.Apply(neighbors);
    neighbors.set_max_nodes(flags.max_nodes);
    neighbors.set_max_edges(flags.max_edges);
  }
  const auto stub = v1::DatasetService::NewStub(session.channel());
  v1::SampleDatasetResponse answer;
  const grpc::Status status =
      session.Unary([&](grpc::ClientContext* context) { return stub->SampleDataset(context, request, &answer); });
  if (!status.ok()) return session.Fail(status);
  if (session.json()) {
    session.PrintJson(answer);
  } else {
    session.Print(RenderSample(answer, session.terminal().style()));
  }
  return ExitCode::kOk;
}

}  // namespace

void AddDatasetSample(CLI::App& dataset, Command& chosen) {
  CLI::App* sample = dataset.add_subcommand("sample", "Draw neighbours or random walks of a large graph, to look at");
  const auto flags = std::make_shared<SampleFlags>();
  sample->add_option("NAME", flags->name, "Name of the dataset")->type_name("")->required();
  flags->draw.AddTo(*sample);
  CLI::Option* fan_out = sample->get_option("--fan-out");
  for (const std::string& name : flags->draw.Names()) {
    if (CLI::Option* option = sample->get_option(name); option != fan_out) option->needs(fan_out);
  }
  sample->add_option("--max-nodes", flags->max_nodes, "Most nodes of the sample (default: no bound)")
      ->needs(fan_out)
      ->type_name("N");
  sample->add_option("--max-edges", flags->max_edges, "Most edges of the sample (default: no bound)")
      ->needs(fan_out)
      ->type_name("N");
  flags->walk.AddTo(*sample);
  CLI::Option* walk = sample->get_option("--walk")->excludes(fan_out);
  for (const std::string& name : flags->walk.Names()) {
    if (CLI::Option* option = sample->get_option(name); option != walk) option->needs(walk);
  }
  CLI::Option* nodes = sample->add_option("--nodes", flags->nodes, "Rows to begin at")
                           ->check(NotNegative())
                           ->delimiter(',')
                           ->type_name("ROW,...");
  CLI::Option* names = sample->add_option("--names", flags->names, "Nodes to begin at, as the source calls them")
                           ->excludes(nodes)
                           ->delimiter(',')
                           ->type_name("NAME,...");
  sample
      ->add_option("--count", flags->count,
                   absl::StrCat("Nodes to begin at, drawn by the seed (default ", spec::kDefaultStarts, ")"))
      ->excludes(nodes)
      ->excludes(names)
      ->type_name("N");
  sample->add_option("--seed", flags->seed, "Seed of all that is drawn (default 0)")
      ->check(NotNegative())
      ->type_name("N");
  sample->callback([flags, &chosen] { chosen = [flags](Session& session) { return Sample(session, *flags); }; });
}

namespace {

struct DatasetPlanFlags {
  std::string name;
  uint64_t memory_bytes = 0;
  SpecFlags draw{DrawRows()};
  std::optional<int64_t> batch_size;
  uint64_t seed = 0;
};

ExitCode PlanReading(Session& session, const DatasetPlanFlags& flags) {
  v1::PlanDatasetRequest request;
  request.set_name(WithCollection("datasets", flags.name));
  request.set_memory_bytes(static_cast<int64_t>(flags.memory_bytes));
  for (const SpecSetting& setting : flags.draw.Given()) setting.Apply(*request.mutable_neighbors());
  if (flags.batch_size) request.set_batch_size(*flags.batch_size);
  request.set_seed(flags.seed);
  const auto stub = v1::DatasetService::NewStub(session.channel());
  v1::PlanDatasetResponse plan;
  const grpc::Status status =
      session.Unary([&](grpc::ClientContext* context) { return stub->PlanDataset(context, request, &plan); });
  if (!status.ok()) return session.Fail(status);
  if (session.json()) {
    session.PrintJson(plan);
  } else {
    session.Print(
        RenderDatasetPlan(plan, OneLine(StripCollection("datasets", flags.name)), session.terminal().style()));
  }
  return ExitCode::kOk;
}

}  // namespace

void AddDatasetPlan(CLI::App& dataset, Command& chosen) {
  CLI::App* plan = dataset.add_subcommand(
      "plan", "What an epoch over a large graph would read from the server's disk, before anyone trains");
  const auto flags = std::make_shared<DatasetPlanFlags>();
  const int64_t batch_size = spec::DefaultOptions(spec::ModelLevel::kNode).batch_size;
  plan->add_option("NAME", flags->name, "Name of the dataset")->type_name("")->required();
  plan->add_option("--memory", flags->memory_bytes, "Memory for feature rows, as 4GB")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/true).description(""))
      ->type_name("SIZE")
      ->required();
  flags->draw.AddTo(*plan);
  plan->get_option("--fan-out")->required();
  plan->add_option("--batch-size", flags->batch_size, absl::StrCat("Seed nodes a batch (default ", batch_size, ")"))
      ->type_name("N");
  plan->add_option("--seed", flags->seed, "Seed of all that is drawn (default 0)")
      ->check(NotNegative())
      ->type_name("N");
  plan->callback([flags, &chosen] { chosen = [flags](Session& session) { return PlanReading(session, *flags); }; });
}

}  // namespace permafrost::client
