// Tests `permafrost server` against a scripted server: what it sends, what it prints, and how it exits.

#include "client/fake_server.h"
#include "client/program.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace permafrost::client {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class ServerCommandTest : public testing::Test {
 protected:
  ProgramResult Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--server", fake_.address()});
    return RunProgram(arguments);
  }

  FakeServer fake_;
};

TEST_F(ServerCommandTest, ServerInfoAndDrain) {
  fake_.server.info = [](const v1::GetServerInfoRequest&, v1::ServerInfo& info) {
    info.set_version("0.1.0");
    info.set_git_commit("abc");
    info.set_torch_version("2.13.0");
    info.set_device("cpu");
    info.set_threads(2);
    info.add_import_roots("/data");
    info.add_import_roots("/more");
    return grpc::Status::OK;
  };
  fake_.server.drain = [](const v1::DrainRequest&, v1::DrainResponse& response) {
    response.set_running_job("jobs/zinc-1");
    return grpc::Status::OK;
  };
  fake_.Start();
  const ProgramResult info = Run({"server", "info"});
  EXPECT_EQ(info.exit_code, 0);
  EXPECT_THAT(info.out,
              HasSubstr("  version       0.1.0 (abc)\n  libtorch      2.13.0\n  device        cpu, 2 threads\n"));
  EXPECT_THAT(info.out, HasSubstr("  import roots  /data, /more\n"));
  EXPECT_EQ(json::parse(Run({"server", "info", "--output", "json"}).out)["importRoots"][1], "/more");
  EXPECT_EQ(Run({"server", "drain"}).out,
            "the server drains and exits; job zinc-1 writes a checkpoint and resumes at the next start\n");
}

TEST_F(ServerCommandTest, ServerInfoTellsOfWhatItGoesOnFrom) {
  fake_.server.info = [](const v1::GetServerInfoRequest&, v1::ServerInfo& info) {
    info.mutable_restored()->mutable_create_time()->set_seconds(1'700'000'000);
    info.mutable_restored()->add_jobs_anew("jobs/zinc-1");
    info.mutable_restored()->add_jobs_anew("jobs/zinc-2");
    info.mutable_restored()->add_imports("datasets/qm9");
    return grpc::Status::OK;
  };
  fake_.Start();
  const std::string out = Run({"server", "info"}).out;
  EXPECT_THAT(out, HasSubstr("from the backup of 2023-11-1"));
  EXPECT_THAT(out, HasSubstr("; jobs begun anew: zinc-1, zinc-2; imports begun anew: qm9\n"));
}

TEST_F(ServerCommandTest, ServerInfoShowsWhatTheDeviceTells) {
  fake_.server.info = [](const v1::GetServerInfoRequest&, v1::ServerInfo& info) {
    info.set_device("mps");
    info.set_threads(1);
    v1::DeviceState& device = *info.mutable_device_state();
    device.mutable_memory()->set_allocated_bytes(5'340'000);
    device.mutable_memory()->set_driver_bytes(0);
    device.set_no_graph_entries_reason("libtorch 2.99");
    device.set_utilization(0.25);
    for (const auto& [reason, count] : {std::pair("never", 2), {"command", 0}, {"job", 1}}) {
      device.add_empty_caches()->set_reason(reason);
      device.mutable_empty_caches()->rbegin()->set_count(count);
    }
    device.add_settings()->set_name("PYTORCH_ENABLE_MPS_FALLBACK");
    device.mutable_settings(0)->set_value("1");
    device.add_warnings("an operator that MPS lacks would run on the CPU");
    return grpc::Status::OK;
  };
  fake_.Start();
  EXPECT_THAT(Run({"server", "info"}).out,
              HasSubstr("  device          mps, 1 thread\n"
                        "  memory          5.34 MB allocated, 0 B in the driver\n"
                        "  device graphs   unavailable: libtorch 2.99\n"
                        "  utilization     25 %\n"
                        "  caches emptied  3 times (never 2, job 1)\n"
                        "  environment     PYTORCH_ENABLE_MPS_FALLBACK=1\n"
                        "  warning         an operator that MPS lacks would run on the CPU\n"));
}

TEST_F(ServerCommandTest, ServerWatchPrintsALineForEachChange) {
  fake_.server.watch = [](const v1::WatchServerRequest&, grpc::ServerWriter<v1::ServerInfo>& writer,
                          grpc::ServerContext&) {
    v1::ServerInfo info;
    info.set_device("mps");
    info.mutable_device_state()->mutable_memory()->set_driver_bytes(1'000);
    writer.Write(info);
    info.set_draining(true);
    info.set_running_jobs(1);
    info.mutable_device_state()->set_graph_entries(12);
    writer.Write(info);
    return grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "no more");
  };
  fake_.Start();
  const ProgramResult result = Run({"server", "watch"});
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_EQ(result.out,
            "serving  0 running, 0 queued  mps: 1.00 kB in the driver\n"
            "draining  1 running, 0 queued  mps: 1.00 kB in the driver, 12 graphs\n");
  EXPECT_THAT(Run({"server", "watch", "--output", "json"}).out, HasSubstr("\"graphEntries\":\"12\""));
}

}  // namespace
}  // namespace permafrost::client
