#include "client/spec_file.h"

#include <string>

#include "gtest/gtest.h"

namespace permafrost::client {
namespace {

v1::CreateJobRequest Parsed(SpecSyntax syntax, const std::string& text) {
  const auto request = ParseSpec("job", syntax, text);
  EXPECT_TRUE(request.ok()) << request.status();
  return request.ok() ? *request : v1::CreateJobRequest();
}

v1::CreateJobRequest Full() {
  v1::CreateJobRequest request;
  request.set_job_id("zinc-1");
  (*request.mutable_labels())["team"] = "gnn";
  v1::JobSpec& spec = *request.mutable_spec();
  spec.set_dataset("zinc");
  spec.mutable_model()->set_architecture(v1::ModelSpec::ARCHITECTURE_GINE);
  spec.mutable_model()->set_hidden_channels(128);
  spec.mutable_model()->set_pooling(v1::ModelSpec::POOLING_SUM);
  spec.mutable_optimizer()->set_learning_rate(5e-4);
  spec.set_loss(v1::JobSpec::LOSS_L1);
  spec.set_epochs(100);
  spec.set_seed(18446744073709551615ULL);
  spec.set_priority(-5);
  spec.mutable_checkpoint()->set_every_steps(50);
  spec.mutable_model()->set_dropout(0.1);
  spec.mutable_optimizer()->set_max_grad_norm(2.5);
  spec.mutable_optimizer()->set_schedule(v1::OptimizerSpec::SCHEDULE_COSINE);
  spec.mutable_optimizer()->set_warmup_steps(100);
  spec.mutable_graph_cache()->set_policy(v1::GraphCachePolicy::POLICY_CLEAR_PER_STEP);
  spec.mutable_graph_cache()->set_freeze_at(50);
  spec.mutable_graph_cache()->set_on_miss(v1::GraphCachePolicy::ON_MISS_EAGER);
  return request;
}

TEST(SpecFile, YamlWithShortNames) {
  const v1::CreateJobRequest request = Parsed(SpecSyntax::kYaml, R"(
# comments are welcome
job_id: zinc-1
labels: {team: gnn}
dataset: zinc
model:
  architecture: gine
  hidden_channels: 128
  pooling: sum
  dropout: 0.1
optimizer: {learning_rate: 5e-4, max_grad_norm: 2.5, schedule: cosine, warmup_steps: 100}
loss: l1
epochs: 100
seed: 18446744073709551615
priority: -5
checkpoint:
  every_steps: 50
graph_cache:
  policy: clear-per-step
  freeze_at: 50
  on_miss: eager
)");
  EXPECT_EQ(request.DebugString(), Full().DebugString());
}

TEST(SpecFile, JsonWithCamelCaseAndFullNames) {
  const v1::CreateJobRequest request = Parsed(SpecSyntax::kJson, R"({
	"jobId": "zinc-1", "labels": {"team": "gnn"}, "dataset": "zinc",
	"model": {"architecture": "ARCHITECTURE_GINE", "hiddenChannels": 128, "pooling": "POOLING_SUM",
	          "dropout": 0.1},
	"optimizer": {"learningRate": 0.0005, "maxGradNorm": 2.5, "schedule": "SCHEDULE_COSINE", "warmupSteps": "100"},
	"graphCache": {"policy": "POLICY_CLEAR_PER_STEP", "freezeAt": "50", "onMiss": "ON_MISS_EAGER"},
	 "loss": "LOSS_L1", "epochs": "100", "seed": "18446744073709551615",
	"priority": -5, "checkpoint": {"everySteps": 50}
})");
  EXPECT_EQ(request.DebugString(), Full().DebugString()) << "64-bit numbers may be quoted, as protobuf's JSON writes";
}

TEST(SpecFile, NullIsTheDefault) {
  EXPECT_EQ(Parsed(SpecSyntax::kYaml, "dataset: d\nmodel:\nepochs: ~\n").spec().DebugString(), "dataset: \"d\"\n");
}

TEST(SpecFile, AFieldWithPresenceTellsZeroFromAbsent) {
  EXPECT_EQ(Parsed(SpecSyntax::kYaml, "graph_cache: {freeze_at: 0}").spec().ShortDebugString(),
            "graph_cache { freeze_at: 0 }");
  EXPECT_EQ(Parsed(SpecSyntax::kYaml, "graph_cache: {freeze_at: ~, policy: freeze}").spec().ShortDebugString(),
            "graph_cache { policy: POLICY_FREEZE }");
}

// Returns the keys of a message, in the contract's order.
std::string KeysOf(const google::protobuf::Descriptor& message) {
  std::string keys;
  for (int i = 0; i < message.field_count(); ++i) keys += (i == 0 ? "" : ", ") + std::string(message.field(i)->name());
  return keys;
}

TEST(SpecFile, BadInputGetsOneLine) {
  const std::string job_keys = KeysOf(*v1::JobSpec::descriptor()), model_keys = KeysOf(*v1::ModelSpec::descriptor());
  const struct {
    const char* why;
    SpecSyntax syntax;
    const char* text;
    std::string want;
  } kCases[] = {
      {"unknown key at the top", SpecSyntax::kYaml, "dataset: d\nepoch: 3\n",
       "job:2: epoch: unknown key; accepted: job_id, labels, " + job_keys},
      {"unknown key within", SpecSyntax::kYaml, "model:\n  layers: 3\n",
       "job:2: model.layers: unknown key; accepted: " + model_keys},
      {"unknown key of JSON, with its line", SpecSyntax::kJson, "{\n\"model\": {\n\"layers\": 3}}",
       "job:3: model.layers: unknown key; accepted: " + model_keys},
      {"no number", SpecSyntax::kYaml, "epochs: ten\n", "job:1: epochs: 'ten'; accepted: a whole number"},
      {"a fraction where none can be", SpecSyntax::kYaml, "epochs: 1.5\n",
       "job:1: epochs: '1.5'; accepted: a whole number"},
      {"too large", SpecSyntax::kYaml, "priority: 99999999999\n",
       "job:1: priority: '99999999999'; accepted: a whole number of 32 bits"},
      {"negative", SpecSyntax::kYaml, "seed: -1\n", "job:1: seed: '-1'; accepted: a whole number, 0 or more"},
      {"no real number", SpecSyntax::kYaml, "optimizer: {learning_rate: fast}\n",
       "job:1: optimizer.learning_rate: 'fast'; accepted: a number"},
      {"no such name", SpecSyntax::kYaml, "\n\nloss: l2\n", "job:3: loss: 'l2'; accepted: l1, mse, cross-entropy, bce"},
      {"the unset value has no name", SpecSyntax::kYaml, "loss: unspecified\n",
       "job:1: loss: 'unspecified'; accepted: l1, mse, cross-entropy, bce"},
      {"no such policy", SpecSyntax::kYaml, "graph_cache:\n  policy: sometimes\n",
       "job:2: graph_cache.policy: 'sometimes'; accepted: always, never, clear-per-step, freeze"},
      {"a freeze point that is no number", SpecSyntax::kYaml, "graph_cache: {freeze_at: soon}\n",
       "job:1: graph_cache.freeze_at: 'soon'; accepted: a whole number"},
      {"a list where a value belongs", SpecSyntax::kYaml, "epochs: [1, 2]\n",
       "job:1: epochs: is no single value; accepted: a whole number"},
      {"a value where keys belong", SpecSyntax::kYaml, "model: gine\n",
       "job:1: model: is no mapping; accepted keys: " + model_keys},
      {"twice, in both spellings", SpecSyntax::kYaml, "batch_size: 3\nbatchSize: 4\n",
       "job:2: batchSize: is given twice"},
      {"labels that are a text", SpecSyntax::kYaml, "labels: team", "job:1: labels: is no mapping of keys to texts"},
      {"a label that is a list", SpecSyntax::kYaml, "labels:\n  team: [a]", "job:2: labels.team: is no text"},
      {"the labels twice", SpecSyntax::kYaml, "labels: {}\nlabels: {}\n", "job:2: labels: is given twice"},
      {"the ID twice", SpecSyntax::kYaml, "job_id: a\njobId: b\n", "job:2: jobId: is given twice"},
      {"a list at the top", SpecSyntax::kYaml, "- dataset: d\n", "job:1: is no mapping of keys to values"},
      {"nothing", SpecSyntax::kYaml, "", "job: holds 0 YAML documents; accepted: one, a job's keys and values"},
      {"an empty mapping", SpecSyntax::kYaml, "{}", "job:1: is empty; accepted keys: job_id, labels, " + job_keys},
      {"two documents", SpecSyntax::kYaml, "dataset: d\n---\ndataset: e\n",
       "job: holds 2 YAML documents; accepted: one, a job's keys and values"},
      {"no YAML", SpecSyntax::kYaml, "dataset: d\nmodel: {\n", "job:3: is no YAML: end of map flow not found"},
  };
  for (const auto& c : kCases) {
    const auto request = ParseSpec("job", c.syntax, c.text);
    EXPECT_EQ(request.status().code(), absl::StatusCode::kInvalidArgument) << c.why;
    EXPECT_EQ(std::string(request.status().message()), c.want) << c.why;
  }
}

TEST(SpecFile, JsonIsNotTakenForYaml) {
  const auto request = ParseSpec("job.json", SpecSyntax::kJson, "{\n\"epochs\": 3,\n}");
  const std::string message(request.status().message());
  EXPECT_EQ(message.rfind("job.json:3: is no JSON: syntax error", 0), 0u) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

TEST(SpecFile, MissingFileNamesThePath) {
  const auto request = ReadSpecFile("/no/such/job.yaml");
  EXPECT_EQ(request.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(request.status().message().find("/no/such/job.yaml"), absl::string_view::npos);
}

TEST(SpecFile, ListsAndSwitchesOfANodeLevelJob) {
  v1::CreateJobRequest want;
  v1::JobSpec& spec = *want.mutable_spec();
  spec.set_dataset("git");
  spec.mutable_model()->set_architecture(v1::ModelSpec::ARCHITECTURE_SAGE);
  spec.set_loss(v1::JobSpec::LOSS_CROSS_ENTROPY);
  spec.add_class_weights(0.5);
  spec.add_class_weights(2);
  v1::NeighborSampling& sampling = *spec.mutable_neighbor_sampling();
  sampling.add_fan_outs(15);
  sampling.add_fan_outs(-1);
  sampling.add_eval_fan_outs(20);
  sampling.set_replace(true);
  sampling.set_look_ahead(4);
  EXPECT_EQ(Parsed(SpecSyntax::kYaml, R"(
dataset: git
model: {architecture: sage}
loss: cross-entropy
class_weights: [0.5, 2]
neighbor_sampling:
  fan_outs: [15, -1]
  eval_fan_outs: 20
  replace: true
  weighted: false
  look_ahead: 4
)")
                .DebugString(),
            want.DebugString());
  EXPECT_EQ(Parsed(SpecSyntax::kJson, R"({"dataset": "git", "model": {"architecture": "ARCHITECTURE_SAGE"},
    "loss": "LOSS_CROSS_ENTROPY", "classWeights": [0.5, 2],
    "neighborSampling": {"fanOuts": [15, -1], "evalFanOuts": [20], "replace": true, "lookAhead": 4}})")
                .DebugString(),
            want.DebugString());
}

TEST(SpecFile, MetricsAreAListOfNames) {
  const v1::JobSpec spec =
      Parsed(SpecSyntax::kYaml, "metrics: [accuracy, f1-macro]\ncross_validation: {folds: 10, fold: 3}\n").spec();
  EXPECT_EQ(spec.ShortDebugString(),
            "metrics: METRIC_ACCURACY metrics: METRIC_F1_MACRO cross_validation { folds: 10 fold: 3 }");
}

TEST(SpecFile, ABadListNamesItsEntry) {
  const struct {
    const char* text;
    const char* message;
  } kCases[] = {
      {"class_weights: [1, heavy]", "job:1: class_weights[1]: 'heavy'; accepted: a number"},
      {"neighbor_sampling: {fan_outs: [15, [1]]}",
       "job:1: neighbor_sampling.fan_outs[1]: is no single value; accepted: a whole number"},
      {"metrics: [mae, best]",
       "job:1: metrics[1]: 'best'; accepted: mae, accuracy, roc-auc, f1-macro, f1-micro, average-precision, rmse, r2, "
       "mrr, hits-at-10, hits-at-20, hits-at-50, hits-at-100"},
      {"neighbor_sampling: {fan_outs: {a: 1}}",
       "job:1: neighbor_sampling.fan_outs: is no list; each entry is a whole number"},
      {"neighbor_sampling: {replace: maybe}", "job:1: neighbor_sampling.replace: 'maybe'; accepted: true, false"},
  };
  for (const auto& c : kCases) {
    EXPECT_EQ(std::string(ParseSpec("job", SpecSyntax::kYaml, c.text).status().message()), c.message);
  }
}

}  // namespace
}  // namespace permafrost::client
