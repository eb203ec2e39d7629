// Tests what `permafrost` prints and sends about large graphs and node-level jobs, against a scripted server.
#include "client/fake_server.h"
#include "client/program.h"
#include "client/sample_jobs.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace permafrost::client {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using VerifyWriter = grpc::ServerWriter<v1::VerifyDatasetResponse>;

class GraphCommandTest : public testing::Test {
 protected:
  ProgramResult Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--server", fake_.address()});
    return RunProgram(arguments);
  }
  void ScriptSample() {
    fake_.datasets.sample = [this](const v1::SampleDatasetRequest& request, v1::SampleDatasetResponse& response) {
      samples_.Add(request);
      response.add_nodes(3);
      response.set_walk_length(2);
      response.add_walks(3);
      response.add_walks(5);
      return grpc::Status::OK;
    };
  }
  static v1::VerifyDatasetResponse Verified(int64_t done) {
    v1::VerifyDatasetResponse response;
    response.set_bytes_done(done);
    response.set_bytes_total(1'000'000);
    return response;
  }

  FakeServer fake_;
  Recorder<v1::ImportDatasetRequest> imports_;
  Recorder<v1::SampleDatasetRequest> samples_;
  Recorder<v1::CreateJobRequest> jobs_;
};

TEST_F(GraphCommandTest, ImportSendsEveryOption) {
  fake_.datasets.import = [this](const v1::ImportDatasetRequest& request, v1::Dataset& dataset) {
    imports_.Add(request);
    dataset = ImportingDataset(0);
    return grpc::Status::OK;
  };
  fake_.Start();
  const ProgramResult result = Run({"dataset",
                                    "import",
                                    "twitter",
                                    "/data/edges.csv",
                                    "--no-watch",
                                    "--format",
                                    "edge-list",
                                    "--node-ids",
                                    "numbers",
                                    "--columns",
                                    "target,timestamp,source,weight",
                                    "--header",
                                    "no",
                                    "--delimiter",
                                    "tab",
                                    "--comment",
                                    "none",
                                    "--quote",
                                    "'",
                                    "--num-nodes",
                                    "100",
                                    "--directed",
                                    "--coalesce",
                                    "--no-out-edges",
                                    "--node-features",
                                    "sparse",
                                    "--feature-type",
                                    "bfloat16",
                                    "--order",
                                    "community",
                                    "--tu-features",
                                    "degree",
                                    "--one-hot",
                                    "--max-degree",
                                    "77",
                                    "--memory",
                                    "512MiB"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  ASSERT_EQ(imports_.seen().size(), 1u);
  const v1::ImportOptions sent = imports_.seen()[0].options();
  EXPECT_EQ(sent.format(), v1::ImportOptions::FORMAT_EDGE_LIST);
  EXPECT_TRUE(sent.no_inverse_edges());
  EXPECT_TRUE(sent.coalesce());
  EXPECT_TRUE(sent.no_out_edges());
  EXPECT_EQ(sent.node_features(), v1::ImportOptions::NODE_FEATURES_SPARSE);
  EXPECT_EQ(sent.feature_type(), v1::ImportOptions::FEATURE_TYPE_BFLOAT16);
  EXPECT_EQ(sent.order(), v1::ImportOptions::ORDER_COMMUNITY);
  EXPECT_EQ(sent.memory_bytes(), int64_t{512} << 20);
  EXPECT_EQ(sent.tu().node_features(), v1::TuOptions::NODE_FEATURES_DEGREE);
  EXPECT_TRUE(sent.tu().one_hot());
  EXPECT_EQ(sent.tu().max_degree(), 77);
  EXPECT_EQ(sent.edge_list().node_ids(), v1::EdgeListOptions::NODE_IDS_NUMBERS);
  EXPECT_THAT(sent.edge_list().columns(),
              ElementsAre(v1::EdgeListOptions::COLUMN_TARGET, v1::EdgeListOptions::COLUMN_TIMESTAMP,
                          v1::EdgeListOptions::COLUMN_SOURCE, v1::EdgeListOptions::COLUMN_WEIGHT));
  EXPECT_EQ(sent.edge_list().header(), v1::EdgeListOptions::HEADER_NO);
  EXPECT_EQ(sent.edge_list().delimiter(), "\t");
  EXPECT_TRUE(sent.edge_list().has_comment());
  EXPECT_EQ(sent.edge_list().comment(), "");
  EXPECT_EQ(sent.edge_list().quote(), "'");
  EXPECT_EQ(sent.edge_list().num_nodes(), 100);
}

TEST_F(GraphCommandTest, InverseEdgesAreAskedForByOneFlagOrItsOlderNames) {
  fake_.datasets.import = [this](const v1::ImportDatasetRequest& request, v1::Dataset& dataset) {
    imports_.Add(request);
    dataset = ImportingDataset(0);
    return grpc::Status::OK;
  };
  fake_.Start();
  const struct {
    std::vector<std::string> flags;
    v1::ImportOptions::InverseEdges inverse_edges;
    bool no_inverse_edges;
  } kCases[] = {
      {{}, v1::ImportOptions::INVERSE_EDGES_UNSPECIFIED, false},
      {{"--inverse-edges", "auto"}, v1::ImportOptions::INVERSE_EDGES_AUTO, false},
      {{"--inverse-edges", "add"}, v1::ImportOptions::INVERSE_EDGES_ADD, false},
      {{"--inverse-edges", "keep"}, v1::ImportOptions::INVERSE_EDGES_KEEP, true},
      {{"--directed"}, v1::ImportOptions::INVERSE_EDGES_UNSPECIFIED, true},
      {{"--no-inverse-edges"}, v1::ImportOptions::INVERSE_EDGES_UNSPECIFIED, true},
  };
  for (const auto& c : kCases) {
    std::vector<std::string> arguments = {"dataset", "import", "twitter", "/data/edges.csv", "--no-watch"};
    arguments.insert(arguments.end(), c.flags.begin(), c.flags.end());
    const ProgramResult result = Run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const v1::ImportOptions sent = imports_.seen().back().options();
    EXPECT_EQ(sent.inverse_edges(), c.inverse_edges);
    EXPECT_EQ(sent.no_inverse_edges(), c.no_inverse_edges);
  }
}

TEST_F(GraphCommandTest, VerifyEndsWithOneLine) {
  fake_.datasets.verify = [](const v1::VerifyDatasetRequest& request, VerifyWriter& writer, grpc::ServerContext&) {
    EXPECT_EQ(request.name(), "datasets/git");
    writer.Write(Verified(250'000));
    writer.Write(Verified(1'000'000));
    return grpc::Status::OK;
  };
  fake_.Start();
  const ProgramResult result = Run({"dataset", "verify", "git"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, testing::StartsWith("dataset git is whole: 1.00 MB verified in "));
  const ProgramResult json = Run({"--output", "json", "dataset", "verify", "git"});
  EXPECT_EQ(json.out,
            "{\"bytesDone\":\"250000\",\"bytesTotal\":\"1000000\"}\n"
            "{\"bytesDone\":\"1000000\",\"bytesTotal\":\"1000000\"}\n");
}

TEST_F(GraphCommandTest, DamageIsToldAndFails) {
  fake_.datasets.verify = [](const v1::VerifyDatasetRequest&, VerifyWriter& writer, grpc::ServerContext&) {
    writer.Write(Verified(250'000));
    return grpc::Status(grpc::StatusCode::DATA_LOSS, "graph.pfg: in.neighbors: bytes 65536..131071 are damaged");
  };
  fake_.Start();
  const ProgramResult result = Run({"dataset", "verify", "git"});
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.err, HasSubstr("DATA_LOSS: graph.pfg: in.neighbors: bytes 65536..131071 are damaged"));
  EXPECT_EQ(result.out, "");
}

TEST_F(GraphCommandTest, SampleSendsWhatToDraw) {
  ScriptSample();
  fake_.Start();
  EXPECT_EQ(Run({"dataset", "sample", "git", "--fan-out", "15,all", "--replace", "--weighted", "--nodes", "1,2,3",
                 "--seed", "7", "--max-nodes", "40", "--max-edges", "90"})
                .exit_code,
            0);
  const ProgramResult walk = Run({"dataset", "sample", "git", "--walk", "2", "--p", "0.5", "--q", "2", "--count", "1"});
  EXPECT_EQ(walk.exit_code, 0) << walk.err;
  EXPECT_THAT(walk.out, HasSubstr("1 walk of 2 nodes"));
  EXPECT_THAT(walk.out, HasSubstr("3 > 5\n"));
  EXPECT_EQ(Run({"dataset", "sample", "git", "--fan-out", "2", "--temporal", "last", "--seed-time", "-5", "--disjoint",
                 "--sampler", "neighbor"})
                .exit_code,
            0);
  EXPECT_EQ(Run({"dataset", "sample", "git", "--walk", "2", "--temporal", "last"}).exit_code, 2) << "of neighbours";
  ASSERT_EQ(samples_.seen().size(), 3u);
  const v1::SampleDatasetRequest::Neighbors timed = samples_.seen()[2].neighbors();
  EXPECT_EQ(timed.temporal(), v1::TEMPORAL_SAMPLING_LAST);
  EXPECT_EQ(timed.seed_time(), -5);
  EXPECT_TRUE(timed.disjoint());
  EXPECT_EQ(timed.sampler(), v1::SAMPLER_KIND_NEIGHBOR);
  const v1::SampleDatasetRequest neighbors = samples_.seen()[0];
  EXPECT_EQ(neighbors.name(), "datasets/git");
  EXPECT_THAT(neighbors.nodes(), ElementsAre(1, 2, 3));
  EXPECT_EQ(neighbors.seed(), 7u);
  EXPECT_THAT(neighbors.neighbors().fan_outs(), ElementsAre(15, -1));
  EXPECT_TRUE(neighbors.neighbors().replace());
  EXPECT_TRUE(neighbors.neighbors().weighted());
  EXPECT_EQ(neighbors.neighbors().max_nodes(), 40);
  EXPECT_EQ(neighbors.neighbors().max_edges(), 90);
  const v1::SampleDatasetRequest sent = samples_.seen()[1];
  EXPECT_EQ(sent.walk().length(), 2);
  EXPECT_EQ(sent.walk().p(), 0.5);
  EXPECT_EQ(sent.walk().q(), 2);
  EXPECT_EQ(sent.count(), 1);
}

TEST_F(GraphCommandTest, SampleBeginsAtNames) {
  ScriptSample();
  fake_.Start();
  EXPECT_EQ(Run({"dataset", "sample", "git", "--fan-out", "3", "--names", "ann,bob"}).exit_code, 0);
  EXPECT_THAT(samples_.seen()[0].names(), ElementsAre("ann", "bob"));
  EXPECT_EQ(Run({"dataset", "sample", "git", "--fan-out", "3", "--names", "ann", "--nodes", "1"}).exit_code, 2);
}

TEST_F(GraphCommandTest, SampleMustKnowWhatToDraw) {
  fake_.Start();
  const ProgramResult nothing = Run({"dataset", "sample", "git"});
  EXPECT_EQ(nothing.exit_code, 2);
  EXPECT_THAT(nothing.err, HasSubstr("--fan-out or --walk is missing"));
  EXPECT_EQ(Run({"dataset", "sample", "git", "--walk", "5", "--fan-out", "3"}).exit_code, 2) << "one of them";
  EXPECT_EQ(Run({"dataset", "sample", "git", "--fan-out", "3", "--p", "2"}).exit_code, 2) << "of walks alone";
  EXPECT_EQ(Run({"dataset", "sample", "git", "--walk", "5", "--nodes", "-1"}).exit_code, 2) << "no row";
}

TEST_F(GraphCommandTest, SubmitSendsHowToSample) {
  fake_.jobs.create = [this](const v1::CreateJobRequest& request, v1::Job& job) {
    jobs_.Add(request);
    job = QueuedJob();
    return grpc::Status::OK;
  };
  fake_.Start();
  const ProgramResult result = Run({"job",
                                    "submit",
                                    "--dataset",
                                    "git",
                                    "--architecture",
                                    "sage",
                                    "--fan-out",
                                    "15,10",
                                    "--eval-fan-out",
                                    "all,all",
                                    "--replace",
                                    "--weighted",
                                    "--layer-wise-eval",
                                    "--class-weights",
                                    "0.5,2",
                                    "--look-ahead",
                                    "16",
                                    "--no-page-advice",
                                    "--disjoint",
                                    "--temporal",
                                    "uniform",
                                    "--seed-time",
                                    "0",
                                    "--sampler",
                                    "labor",
                                    "--loss",
                                    "cross-entropy"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  ASSERT_EQ(jobs_.seen().size(), 1u);
  const v1::JobSpec sent = jobs_.seen()[0].spec();
  EXPECT_EQ(sent.model().architecture(), v1::ModelSpec::ARCHITECTURE_SAGE);
  EXPECT_EQ(sent.loss(), v1::JobSpec::LOSS_CROSS_ENTROPY);
  EXPECT_THAT(sent.class_weights(), ElementsAre(0.5, 2));
  const v1::NeighborSampling& sampling = sent.neighbor_sampling();
  EXPECT_THAT(sampling.fan_outs(), ElementsAre(15, 10));
  EXPECT_THAT(sampling.eval_fan_outs(), ElementsAre(-1, -1));
  EXPECT_TRUE(sampling.replace());
  EXPECT_TRUE(sampling.weighted());
  EXPECT_TRUE(sampling.layer_wise_evaluation());
  EXPECT_EQ(sampling.look_ahead(), 16);
  EXPECT_TRUE(sampling.no_page_advice());
  EXPECT_TRUE(sampling.disjoint());
  EXPECT_EQ(sampling.temporal(), v1::TEMPORAL_SAMPLING_UNIFORM);
  EXPECT_TRUE(sampling.has_seed_time());
  EXPECT_EQ(sampling.seed_time(), 0);
  EXPECT_EQ(sampling.sampler(), v1::SAMPLER_KIND_LABOR);
  ASSERT_EQ(Run({"job", "submit", "--dataset", "zinc"}).exit_code, 0);
  EXPECT_FALSE(jobs_.seen()[1].spec().has_neighbor_sampling()) << "nothing said, nothing sent";
}

}  // namespace
}  // namespace permafrost::client
