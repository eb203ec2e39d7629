#include "client/weight_flags.h"

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/commands.h"
#include "client/defaults.h"
#include "client/format.h"

namespace permafrost::client {
namespace {

template <class Show>
std::string UpdateDefault(const Show& show) {
  return JobDefault([&show](const spec::TrainOptions& options) { return absl::StrCat(show(options.optimizer)); });
}

}  // namespace

void AddUpdateOptions(CLI::App& command, UpdateFlags& flags) {
  using spec::OptimizerOptions;
  const std::string patience = UpdateDefault([](const OptimizerOptions& o) { return o.plateau_patience; });
  const std::string threshold = UpdateDefault([](const OptimizerOptions& o) { return o.plateau_threshold; });
  const std::string least = UpdateDefault([](const OptimizerOptions& o) { return o.min_learning_rate; });
  const std::string accumulate = UpdateDefault([](const OptimizerOptions& o) { return o.accumulate_steps; });
  const std::string decayed = JobDefault(
      [](const spec::TrainOptions& o) { return NameOf(spec::kWeightDecayOfNames, o.optimizer.weight_decay_of); });
  command
      .add_option(
          "--plateau-patience", flags.plateau_patience,
          absl::StrCat("Of --schedule plateau: epochs without a better validation that leave the learning rate (",
                       patience, ")"))
      ->type_name("N");
  command
      .add_option("--plateau-threshold", flags.plateau_threshold,
                  absl::StrCat("Of --schedule plateau: by which part of the best a better validation is better (",
                               threshold, ")"))
      ->type_name("X");
  command
      .add_option("--min-lr", flags.min_learning_rate,
                  absl::StrCat("Of --schedule plateau: the least learning rate (", least, ")"))
      ->type_name("X");
  AddEnumOption(command, "--weight-decay-of", flags.weight_decay_of, *v1::OptimizerSpec::WeightDecayOf_descriptor(),
                absl::StrCat("Parameters that --weight-decay shrinks; matrices: no biases and norms (", decayed, ")"));
  command
      .add_option("--ema-decay", flags.ema_decay,
                  "Evaluate and export running averages of the weights, of which an update leaves this part (default: "
                  "the weights themselves)")
      ->type_name("X");
  command
      .add_option("--accumulate-steps", flags.accumulate_steps,
                  absl::StrCat("Batches whose mean gradient makes one update (", accumulate, ")"))
      ->type_name("N");
}

void AddWeightOptions(CLI::App& command, WeightFlags& flags) {
  command
      .add_option("--init-from", flags.job,
                  "Begin with the weights of this job; rows of single nodes go to the nodes of the same names")
      ->type_name("JOB");
  command
      .add_option("--init-weights", flags.weights,
                  "With --init-from: those of its best epoch, or its last ones (default best)")
      ->check(OneOf(EnumShortNames(*v1::InitFrom::Weights_descriptor())))
      ->type_name("WEIGHTS");
  command
      .add_option("--init-file", flags.file,
                  "Begin with the weights of this safetensors file, below an import root of the server")
      ->type_name("FILE");
  AddSwitch(command, "--init-by-name", flags.by_name,
            "Take the weights whose name and shape fit, and leave the others (default: all must fit)");
  command
      .add_option("--fixed-parameters", flags.fixed,
                  "Do not train parameters whose names begin so, such as convs.0 or head")
      ->delimiter(',')
      ->type_name("NAME,...");
}

void Override(const UpdateFlags& flags, v1::OptimizerSpec& optimizer) {
  if (flags.plateau_patience) optimizer.set_plateau_patience(*flags.plateau_patience);
  if (flags.plateau_threshold) optimizer.set_plateau_threshold(*flags.plateau_threshold);
  if (flags.min_learning_rate) optimizer.set_min_learning_rate(*flags.min_learning_rate);
  if (flags.ema_decay) optimizer.set_ema_decay(*flags.ema_decay);
  if (flags.accumulate_steps) optimizer.set_accumulate_steps(*flags.accumulate_steps);
  if (flags.weight_decay_of) {
    optimizer.set_weight_decay_of(EnumOf<v1::OptimizerSpec::WeightDecayOf>(
        *v1::OptimizerSpec::WeightDecayOf_descriptor(), *flags.weight_decay_of));
  }
}

void Override(const WeightFlags& flags, v1::JobSpec& spec) {
  if (!flags.fixed.empty()) spec.mutable_fixed_parameters()->Assign(flags.fixed.begin(), flags.fixed.end());
  if (!spec.has_init_from() && !flags.any()) return;
  v1::InitFrom& from = *spec.mutable_init_from();
  if (flags.job) from.set_job(*flags.job);
  if (!from.job().empty()) from.set_job(WithCollection("jobs", from.job()));
  if (flags.file) from.set_file(std::filesystem::absolute(*flags.file).lexically_normal().string());
  if (flags.weights)
    from.set_weights(EnumOf<v1::InitFrom::Weights>(*v1::InitFrom::Weights_descriptor(), *flags.weights));
  if (flags.by_name) from.set_by_name(*flags.by_name);
}

}  // namespace permafrost::client
