#include "daemon/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/file.h"
#include "daemon/parse_options.h"
#include "temp_dir.h"

namespace permafrost {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string WriteConfig(const TempDir& dir, const std::string& content) {
  const auto path = dir.path() / "permafrost.toml";
  EXPECT_TRUE(WriteFileAtomic(path, content).ok());
  return path.string();
}

TEST(ParseOptions, WhatIsKeptOfJobsByNumberByAgeAndBySize) {
  EXPECT_EQ(Parsed({"--keep-finished-jobs", "100"}).keep_finished.count, 100);
  EXPECT_EQ(Parsed({"--keep-finished-jobs", "30d"}).keep_finished.age, absl::Hours(24 * 30));
  EXPECT_EQ(Parsed({"--keep-finished-jobs", "12h"}).keep_finished.age, absl::Hours(12));
  EXPECT_TRUE(Parsed({"--keep-finished-jobs", "all"}).keep_finished.keeps_all());
  EXPECT_EQ(Parsed({"--max-job-log", "1MB"}).max_job_log_bytes, 1'000'000u);
  EXPECT_TRUE(Parsed({"--no-preemption"}).no_preemption);
  for (const char* bad : {"-1", "some", "0s", "inf", "nand", "-3d"}) {
    EXPECT_THAT(Parse({"--keep-finished-jobs", bad}).text, HasSubstr("an age of at least 1s")) << bad;
  }
  EXPECT_THAT(Parse({"--max-job-log", "1000"}).text, HasSubstr("0, or 64KiB and more"));
}

TEST(ParseOptions, DefaultsAreThoseOfTheStruct) {
  const Options got = Parsed({});
  const Options want;
  EXPECT_EQ(got.listen, want.listen);
  EXPECT_EQ(got.metrics, want.metrics);
  EXPECT_EQ(got.state_dir, want.state_dir);
  EXPECT_EQ(got.device, want.device);
  EXPECT_EQ(got.threads, want.threads);
  EXPECT_EQ(got.import_roots, want.import_roots);
  EXPECT_EQ(got.quarantine_unknown_jobs, want.quarantine_unknown_jobs);
  EXPECT_EQ(got.insecure, want.insecure);
  EXPECT_EQ(got.exit_timeout, want.exit_timeout);
  EXPECT_FALSE(got.no_preemption);
  EXPECT_TRUE(got.keep_finished.keeps_all());
  EXPECT_EQ(got.max_job_log_bytes, 0u);
  EXPECT_EQ(got.graph_cache, want.graph_cache);
  EXPECT_EQ(got.mps_driver_threshold, want.mps_driver_threshold);
  EXPECT_EQ(got.feature_reader, want.feature_reader);
  EXPECT_EQ(got.feature_cache_bytes, want.feature_cache_bytes);
  EXPECT_EQ(got.self_test_device, std::nullopt);
  EXPECT_EQ(got.self_test_steps, want.self_test_steps);
  EXPECT_EQ(got.self_test_data, want.self_test_data);
}

TEST(ParseOptions, OfDevices) {
  EXPECT_EQ(Parsed({"--mps-driver-threshold", "0"}).mps_driver_threshold, 0);
  EXPECT_EQ(Parsed({}, {{"PERMAFROST_MPS_DRIVER_THRESHOLD", "1.5"}}).mps_driver_threshold, 1.5);
  EXPECT_EQ(Parsed({"--self-test-device", "mps"}).self_test_device, DeviceChoice(DeviceKind::kMps));
  EXPECT_EQ(Parsed({"--device", "cuda:1"}).device, DeviceChoice(DeviceKind::kCuda, 1));
  EXPECT_EQ(Parsed({"--device", "cuda"}).device, DeviceChoice(DeviceKind::kCuda));
  EXPECT_EQ(Parsed({"--self-test-device", "off"}).self_test_device, std::nullopt);
  const struct {
    const char* flag;
    const char* value;
    const char* accepted;
  } kBad[] = {{"--mps-driver-threshold", "2.1", "0 to 2"},
              {"--mps-driver-threshold", "nan", "0 to 2"},
              {"--device", "cuda:", "cuda:N for the card N, from 0"},
              {"--device", "cuda:-1", "cuda:N for the card N, from 0"},
              {"--device", "cuda:64", "cuda:N for the card N, from 0"},
              {"--device", "cpu:1", "cuda:N for the card N, from 0"},
              {"--mps-driver-threshold", "most", "0 to 2"},
              {"--self-test-device", "gpu", "off, auto, cpu, mps, cuda"},
              {"--self-test-steps", "19", "20 to 1000000"},
              {"--self-test-data", "", "a directory"}};
  for (const auto& c : kBad) {
    const ParsedOptions parsed = Parse({c.flag, c.value});
    EXPECT_EQ(parsed.exit_code, kExitUsage) << c.flag;
    EXPECT_THAT(parsed.text, HasSubstr(c.flag));
    EXPECT_THAT(parsed.text, HasSubstr(c.accepted)) << c.value;
  }
}

TEST(ParseOptions, OfFeatures) {
  EXPECT_EQ(Parsed({"--feature-reader", "io_uring"}).feature_reader, data::FeatureReader::kUring);
  EXPECT_EQ(Parsed({"--feature-reader", "pread"}).feature_reader, data::FeatureReader::kPread);
  const struct {
    const char* size;
    uint64_t bytes;
  } kSizes[] = {{"0", 0},     {"500000000", 500'000'000}, {"500MB", 500'000'000},    {"1.5GiB", 1'610'612'736},
                {"2k", 2000}, {"16Ki", 16'384},           {"1T", 1'000'000'000'000}, {"12B", 12}};
  for (const auto& c : kSizes) EXPECT_EQ(Parsed({"--feature-cache", c.size}).feature_cache_bytes, c.bytes) << c.size;
  for (const char* bad : {"", "-1", "MB", "5iB", "1e99", "nan", "5MBB", "5mb"}) {
    const ParsedOptions parsed = Parse({"--feature-cache", bad});
    EXPECT_EQ(parsed.exit_code, kExitUsage) << bad;
    EXPECT_THAT(parsed.text, HasSubstr("bytes up to 1000TB, as 500000000, 500MB or 1.5GiB")) << bad;
  }
  EXPECT_THAT(Parse({"--feature-reader", "mmap"}).text, HasSubstr("auto, mapped, io-uring, pread"));
}

TEST(ParseOptions, ReadsEveryFlag) {
  const Options got = Parsed({"--listen",
                              "localhost:0",
                              "--metrics=[::1]:0",
                              "--state-dir",
                              "/s",
                              "--device",
                              "cpu",
                              "--threads",
                              "3",
                              "--import-root",
                              "/a",
                              "--import-root",
                              "/b:c",
                              "--quarantine-unknown-jobs",
                              "--insecure",
                              "--exit-timeout",
                              "1.5",
                              "--max-connections-per-client",
                              "5",
                              "--cache-policy",
                              "clear-per-step",
                              "--freeze-at",
                              "12",
                              "--on-miss",
                              "reject",
                              "--shapes",
                              "exact",
                              "--audit-every",
                              "7",
                              "--strict",
                              "--max-executables",
                              "9"});
  EXPECT_EQ(got.listen, "localhost:0");
  EXPECT_EQ(got.metrics, "[::1]:0");
  EXPECT_EQ(got.state_dir, "/s");
  EXPECT_EQ(got.device.kind, DeviceKind::kCpu);
  EXPECT_EQ(got.threads, 3);
  EXPECT_THAT(got.import_roots, ElementsAre("/a", "/b:c"));
  EXPECT_TRUE(got.quarantine_unknown_jobs);
  EXPECT_TRUE(got.insecure);
  EXPECT_EQ(got.max_connections_per_client, 5);
  EXPECT_EQ(got.exit_timeout, absl::Seconds(1.5));
  EXPECT_EQ(got.graph_cache, (spec::PolicyOptions{.policy = spec::Policy::kClearPerStep,
                                                  .freeze_at = 12,
                                                  .on_miss = spec::OnMiss::kReject,
                                                  .shapes = spec::Shapes::kExact,
                                                  .audit_every = 7,
                                                  .strict = true,
                                                  .max_executables = 9}));
}

TEST(ParseOptions, ReadsEveryVariable) {
  const Options got = Parsed({}, {{"PERMAFROST_LISTEN", "localhost:0"},
                                  {"PERMAFROST_METRICS", "[::1]:0"},
                                  {"PERMAFROST_STATE_DIR", "/s"},
                                  {"PERMAFROST_DEVICE", "cpu"},
                                  {"PERMAFROST_THREADS", "3"},
                                  {"PERMAFROST_IMPORT_ROOT", "/a::/b:"},
                                  {"PERMAFROST_INSECURE", "1"},
                                  {"PERMAFROST_EXIT_TIMEOUT", "0"},
                                  {"PERMAFROST_CACHE_POLICY", "clear_per_step"},
                                  {"PERMAFROST_FREEZE_AT", "12"},
                                  {"PERMAFROST_ON_MISS", "reject"},
                                  {"PERMAFROST_SHAPES", "exact"},
                                  {"PERMAFROST_AUDIT_EVERY", "7"},
                                  {"PERMAFROST_STRICT", "1"},
                                  {"PERMAFROST_MAX_EXECUTABLES", "9"}});
  EXPECT_EQ(got.listen, "localhost:0");
  EXPECT_EQ(got.metrics, "[::1]:0");
  EXPECT_EQ(got.state_dir, "/s");
  EXPECT_EQ(got.device.kind, DeviceKind::kCpu);
  EXPECT_EQ(got.threads, 3);
  EXPECT_THAT(got.import_roots, ElementsAre("/a", "/b"));
  EXPECT_TRUE(got.insecure);
  EXPECT_EQ(got.exit_timeout, absl::ZeroDuration());
  EXPECT_EQ(got.graph_cache, (spec::PolicyOptions{.policy = spec::Policy::kClearPerStep,
                                                  .freeze_at = 12,
                                                  .on_miss = spec::OnMiss::kReject,
                                                  .shapes = spec::Shapes::kExact,
                                                  .audit_every = 7,
                                                  .strict = true,
                                                  .max_executables = 9}));
}

TEST(ParseOptions, ReadsEveryKeyOfTheFile) {
  const TempDir dir;
  const std::string file = WriteConfig(dir,
                                       "# a comment\n"
                                       "listen = \"localhost:0\"\n"
                                       "metrics = \"[::1]:0\"\n"
                                       "state-dir = \"/with a space\"\n"
                                       "device = \"cpu\"\n"
                                       "threads = 3\n"
                                       "import-root = [\"/a\", \"/b\"]\n"
                                       "insecure = true\n"
                                       "exit-timeout = 1.5\n"
                                       "cache-policy = \"clear_per_step\"\n"
                                       "freeze-at = 12\n"
                                       "on-miss = \"reject\"\n"
                                       "shapes = \"exact\"\n"
                                       "audit-every = 7\n"
                                       "strict = true\n"
                                       "max-executables = 9\n");
  const Options got = Parsed({"--config", file});
  EXPECT_EQ(got.listen, "localhost:0");
  EXPECT_EQ(got.metrics, "[::1]:0");
  EXPECT_EQ(got.state_dir, "/with a space");
  EXPECT_EQ(got.device.kind, DeviceKind::kCpu);
  EXPECT_EQ(got.threads, 3);
  EXPECT_THAT(got.import_roots, ElementsAre("/a", "/b"));
  EXPECT_TRUE(got.insecure);
  EXPECT_EQ(got.exit_timeout, absl::Seconds(1.5));
  EXPECT_EQ(got.graph_cache, (spec::PolicyOptions{.policy = spec::Policy::kClearPerStep,
                                                  .freeze_at = 12,
                                                  .on_miss = spec::OnMiss::kReject,
                                                  .shapes = spec::Shapes::kExact,
                                                  .audit_every = 7,
                                                  .strict = true,
                                                  .max_executables = 9}));
}

TEST(ParseOptions, FlagOverVariableOverFileOverDefault) {
  const TempDir dir;
  const std::string file = WriteConfig(dir, "threads = 1\ndevice = \"cpu\"\nimport-root = [\"/file\"]\n");
  const struct {
    const char* why;
    std::vector<std::string> args;
    Variables variables;
    int threads;
  } kCases[] = {
      {"default", {}, {}, 0},
      {"file over default", {"--config", file}, {}, 1},
      {"variable over file", {"--config", file}, {{"PERMAFROST_THREADS", "2"}}, 2},
      {"flag over variable", {"--config", file, "--threads", "3"}, {{"PERMAFROST_THREADS", "2"}}, 3},
      {"the file may be named by a variable", {}, {{"PERMAFROST_CONFIG", file}}, 1},
      {"an empty variable is none", {"--config", file}, {{"PERMAFROST_THREADS", ""}}, 1},
      {"a bad variable below a flag is not read", {"--threads", "3"}, {{"PERMAFROST_THREADS", "x"}}, 3},
  };
  for (const auto& c : kCases) EXPECT_EQ(Parsed(c.args, c.variables).threads, c.threads) << c.why;
  EXPECT_THAT(Parsed({"--config", file, "--import-root", "/flag"}).import_roots, ElementsAre("/flag"))
      << "a list is replaced, not extended";
}

TEST(ParseOptions, RefusesInOneLine) {
  const TempDir dir;
  const auto config = [&dir](const std::string& content) {
    static int count = 0;
    const auto path = dir.path() / (std::to_string(count++) + ".toml");
    EXPECT_TRUE(WriteFileAtomic(path, content).ok());
    return path.string();
  };
  const struct {
    const char* why;
    std::vector<std::string> args;
    Variables variables;
    std::vector<std::string> want;
  } kCases[] = {
      {"unknown flag", {"--bogus"}, {}, {"--bogus", "--help"}},
      {"positional", {"serve"}, {}, {"serve", "--help"}},
      {"flag without its value", {"--listen"}, {}, {"--listen"}},
      {"flag given twice", {"--threads", "1", "--threads", "2"}, {}, {"--threads", "2 values", "one"}},
      {"no number", {"--threads", "abc"}, {}, {"--threads \"abc\"", "0 to 1024"}},
      {"negative", {"--threads=-1"}, {}, {"--threads \"-1\"", "0 to 1024"}},
      {"too many threads", {"--threads", "1025"}, {}, {"\"1025\""}},
      {"too many connections",
       {"--max-connections-per-client", "1000001"},
       {},
       {"--max-connections-per-client \"1000001\"", "0 to 1000000"}},
      {"fraction", {"--threads", "1.5"}, {}, {"\"1.5\""}},
      {"variable is named", {}, {{"PERMAFROST_THREADS", "abc"}}, {"PERMAFROST_THREADS \"abc\""}},
      {"unknown device", {"--device", "tpu"}, {}, {"--device \"tpu\"", "auto, cpu, mps, cuda"}},
      {"empty state dir", {"--state-dir", ""}, {}, {"--state-dir \"\"", "a directory"}},
      {"timeout not a number", {"--exit-timeout", "nan"}, {}, {"--exit-timeout \"nan\"", "seconds"}},
      {"timeout endless", {"--exit-timeout", "inf"}, {}, {"\"inf\""}},
      {"unknown policy",
       {"--cache-policy", "sometimes"},
       {},
       {"--cache-policy \"sometimes\"", "always, never, clear-per-step, freeze"}},
      {"unknown way at a miss",
       {},
       {{"PERMAFROST_ON_MISS", "wait"}},
       {"PERMAFROST_ON_MISS \"wait\"", "pad, eager, transient, reject"}},
      {"freeze point below 0", {"--freeze-at=-1"}, {}, {"--freeze-at \"-1\"", "0 to 100000"}},
      {"freeze point too high", {"--freeze-at", "100001"}, {}, {"--freeze-at \"100001\""}},
      {"switch in the environment", {}, {{"PERMAFROST_INSECURE", "maybe"}}, {"PERMAFROST_INSECURE \"maybe\"", "true"}},
      {"no port", {"--listen", "localhost"}, {}, {"--listen \"localhost\"", "HOST:PORT"}},
      {"port too high", {"--listen", "127.0.0.1:65536"}, {}, {"0 to 65535"}},
      {"port with a sign", {"--listen", "127.0.0.1:+1"}, {}, {"0 to 65535"}},
      {"no host means every address", {"--listen", ":7433"}, {}, {"has no host"}},
      {"star", {"--listen", "*:7433"}, {}, {"has no host"}},
      {"broken IPv4", {"--listen", "127.0.0.256:1"}, {}, {"has no host"}},
      {"IPv6 without brackets", {"--listen", "::1:7433"}, {}, {"HOST:PORT"}},
      {"broken IPv6", {"--listen", "[::g]:7433"}, {}, {"IPv6"}},
      {"not loopback", {"--listen", "0.0.0.0:7433"}, {}, {"--listen \"0.0.0.0:7433\"", "--insecure"}},
      {"metrics not loopback", {"--metrics", "[::]:0"}, {}, {"--metrics \"[::]:0\"", "--insecure"}},
      {"a name may be anything", {"--listen", "example.org:1"}, {}, {"--insecure"}},
      {"not loopback by variable", {}, {{"PERMAFROST_LISTEN", "10.0.0.1:1"}}, {"PERMAFROST_LISTEN", "--insecure"}},
      {"a certificate without its key", {"--tls-cert", "c.pem"}, {}, {"--tls-cert", "--tls-key"}},
      {"a key without its certificate", {}, {{"PERMAFROST_TLS_KEY", "k.pem"}}, {"PERMAFROST_TLS_KEY", "--tls-cert"}},
      {"a client CA without TLS", {"--tls-client-ca", "ca.pem"}, {}, {"--tls-client-ca", "--tls-cert"}},
      {"a client role without a CA", {"--tls-client-role", "viewer"}, {}, {"--tls-client-role", "--tls-client-ca"}},
      {"no such role", {"--tls-client-role", "root"}, {}, {"none, viewer, operator, admin"}},
      {"a peer without a port", {"--peers", "lab-2"}, {}, {"--peers \"lab-2\"", "HOST:PORT"}},
      {"a peer twice", {"--peers", "a:1,b:1,a:1"}, {}, {"--peers", "a:1 once"}},
      {"this daemon as its peer",
       {"--listen", "127.0.0.1:7433", "--peers", "127.0.0.1:7433"},
       {},
       {"names this daemon"}},
      {"a token without peers", {"--peer-token-file", "t"}, {}, {"--peer-token-file", "--peers"}},
      {"a certificate for peers without its key",
       {"--peers", "lab-2:1", "--peer-ca", "ca", "--peer-cert", "c"},
       {},
       {"--peer-cert is given without --peer-key"}},
      {"a certificate for peers that speak plain text",
       {"--peers", "lab-2:1", "--peer-cert", "c", "--peer-key", "k"},
       {},
       {"--peer-cert is given without --peer-ca"}},
      {"a token for peers in plain text",
       {"--peers", "lab-2:1", "--peer-token-file", "t"},
       {},
       {"plain text", "--peer-ca"}},
      {"no time for peers",
       {"--peers", "lab-2:1", "--peer-timeout", "0.5"},
       {},
       {"--peer-timeout \"0.5\"", "1 to 3600"}},
      {"no such auth", {"--auth", "basic"}, {}, {"--auth \"basic\"", "auto, none, token"}},
      {"tokens in plain text", {"--listen", "0.0.0.0:1", "--auth", "token"}, {}, {"--listen", "plain text"}},
      {"not even if asked for", {"--listen", "0.0.0.0:1", "--auth", "token", "--insecure"}, {}, {"plain text"}},
      {"TLS without tokens",
       {"--listen", "0.0.0.0:1", "--auth", "none", "--tls-cert", "c", "--tls-key", "k"},
       {},
       {"--auth is none", "--insecure"}},
      {"an address that gRPC takes no tokens by", {"--listen", "127.9.9.9:1", "--auth", "token"}, {}, {"127.0.0.1"}},
      {"an empty socket", {"--socket", ""}, {}, {"--socket \"\"", "auto, off, or a file"}},
      {"no such file", {"--config", "/no/such.toml"}, {}, {"--config \"/no/such.toml\"", "a file"}},
      {"a directory", {"--config", "/"}, {}, {"--config \"/\"", "a file"}},
      {"unknown key", {"--config", config("treads = 1\n")}, {}, {"\"treads\"", "threads"}},
      {"unknown section", {"--config", config("[server]\nthreads = 1\n")}, {}, {"[server]"}},
      {"a line without a value", {"--config", config("nonsense\n")}, {}, {"\"nonsense\""}},
      {"bad value in the file", {"--config", config("threads = \"x\"\n")}, {}, {".toml: threads \"x\"", "0 to 1024"}},
      {"list for one value", {"--config", config("threads = [1, 2]\n")}, {}, {"threads", "2 values"}},
      {"key given twice", {"--config", config("threads = 1\nthreads = 2\n")}, {}, {"threads", "2 values"}},
  };
  for (const auto& c : kCases) {
    const ParsedOptions parsed = Parse(c.args, c.variables);
    EXPECT_FALSE(parsed.options.has_value()) << c.why;
    EXPECT_EQ(parsed.exit_code, kExitUsage) << c.why;
    EXPECT_EQ(parsed.text.find('\n'), parsed.text.size() - 1) << c.why << ": " << parsed.text;
    for (const std::string& part : c.want) EXPECT_THAT(parsed.text, HasSubstr(part)) << c.why;
  }
}

TEST(ParseOptions, TokensAreAskedForWhereOtherMachinesReach) {
  using access::Auth;
  const std::vector<std::string> tls = {"--tls-cert", "c", "--tls-key", "k"};
  const auto with_tls = [&tls](std::vector<std::string> args) {
    args.insert(args.end(), tls.begin(), tls.end());
    return args;
  };
  EXPECT_EQ(Parsed({}).auth, Auth::kNone) << "all addresses are loopback";
  EXPECT_EQ(Parsed(tls).auth, Auth::kNone);
  EXPECT_EQ(Parsed({"--auth", "token"}).auth, Auth::kToken);
  EXPECT_EQ(Parsed(with_tls({"--listen", "0.0.0.0:1"})).auth, Auth::kToken);
  EXPECT_EQ(Parsed(with_tls({"--metrics", "0.0.0.0:1"})).auth, Auth::kToken);
  EXPECT_EQ(Parsed(with_tls({"--listen", "0.0.0.0:1", "--auth", "none", "--insecure"})).auth, Auth::kNone);
  EXPECT_EQ(Parsed({"--listen", "0.0.0.0:1", "--insecure"}).auth, Auth::kNone) << "a token would be read on the way";
  EXPECT_EQ(Parsed(with_tls({"--tls-client-ca", "ca", "--tls-client-role", "operator"})).tls_client_role,
            access::Role::kOperator);
}

TEST(ParseOptions, InsecureAllowsEveryAddress) {
  EXPECT_EQ(Parsed({"--listen", "0.0.0.0:1", "--metrics", "[::]:2", "--insecure"}).listen, "0.0.0.0:1");
  EXPECT_EQ(Parsed({"--listen", "127.9.9.9:1"}).listen, "127.9.9.9:1") << "all of 127/8 is loopback";
}

TEST(ParseOptions, NamesTheFlagThatItDoesNotKnow) {
  const ParsedOptions parsed = Parse({"--drain-timeout", "5"});
  EXPECT_EQ(parsed.exit_code, 2);
  EXPECT_EQ(parsed.text, "permafrostd: '--drain-timeout' is not known here; see --help\n");
}

}  // namespace
}  // namespace permafrost
