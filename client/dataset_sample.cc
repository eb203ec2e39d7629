#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands.h"
#include "client/format.h"
#include "client/sample_view.h"
#include "client/spec_flags.h"
#include "data/sampling/sample_query.h"
#include "permafrost/v1/dataset.grpc.pb.h"

namespace permafrost::client {
namespace {

struct SampleFlags {
  std::string name;
  SpecFlags draw{DrawRows()};
  int64_t max_nodes = 0, max_edges = 0;
  std::optional<int64_t> walk;
  std::optional<double> p, q;
  std::vector<uint32_t> nodes;
  std::vector<std::string> names;
  int64_t count = 0;
  uint64_t seed = 0;
};

ExitCode Sample(Session& session, const SampleFlags& flags) {
  const std::vector<SpecSetting> draw = flags.draw.Given();
  if (draw.empty() && !flags.walk)
    return session.Fail(UsageFailure("--fan-out or --walk is missing: say what to draw, as --fan-out 15,10"));
  v1::SampleDatasetRequest request;
  request.set_name(WithCollection("datasets", flags.name));
  request.mutable_nodes()->Add(flags.nodes.begin(), flags.nodes.end());
  request.mutable_names()->Add(flags.names.begin(), flags.names.end());
  request.set_count(flags.count);
  request.set_seed(flags.seed);
  if (flags.walk) {
    v1::SampleDatasetRequest::Walk& walk = *request.mutable_walk();
    walk.set_length(*flags.walk);
    if (flags.p) walk.set_p(*flags.p);
    if (flags.q) walk.set_q(*flags.q);
  } else {
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
  const data::WalkOptions walks;
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
  CLI::Option* walk = sample->add_option("--walk", flags->walk, "Random walks of so many nodes instead")
                          ->excludes(fan_out)
                          ->type_name("LENGTH");
  sample->add_option("--p", flags->p, absl::StrCat("Walks: below 1 they return more (default ", walks.p, ")"))
      ->needs(walk)
      ->type_name("X");
  sample->add_option("--q", flags->q, absl::StrCat("Walks: below 1 they go farther (default ", walks.q, ")"))
      ->needs(walk)
      ->type_name("X");
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
                   absl::StrCat("Nodes to begin at, drawn by the seed (default ", data::SampleQuery().count, ")"))
      ->excludes(nodes)
      ->excludes(names)
      ->type_name("N");
  sample->add_option("--seed", flags->seed, absl::StrCat("Seed of all that is drawn (default ", walks.seed, ")"))
      ->check(NotNegative())
      ->type_name("N");
  sample->callback([flags, &chosen] { chosen = [flags](Session& session) { return Sample(session, *flags); }; });
}

}  // namespace permafrost::client
