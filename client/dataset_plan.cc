#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands.h"
#include "client/dataset_plan_view.h"
#include "client/format.h"
#include "client/spec_flags.h"
#include "permafrost/v1/dataset.grpc.pb.h"
#include "spec/train_options.h"

namespace permafrost::client {
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
