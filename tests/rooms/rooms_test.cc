// Tests which rooms a room may include: the table of server/README.md, compared with every #include under server/.
// CMake restricts the libraries, but every room's include path has the headers of all rooms. So only this test finds
// a forbidden include before it grows into a cycle.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace permafrost {
namespace {

// Maps a path under server/ ("nn/gine.cc") to the file's content.
using Tree = std::map<std::string, std::string>;

struct Room {
  const char* name;
  // The rooms ("data") or single headers ("train/runner.h") that the room may include, besides itself, base, spec and
  // telemetry.
  std::vector<std::string> may_include;
  bool torch = false;  // files of the room may include libtorch
  bool wire = false;   // files of the room may include .pb.h and gRPC
  const char* why;
};

// A nested room is listed before its parent, so data/store/graph.h belongs to data/store.
const Room kRooms[] = {
    {.name = "base", .may_include = {}, .why = "base is below every room, so it can know none of them"},
    {.name = "telemetry", .may_include = {}, .why = "every room may use telemetry, so it can know none of them"},
    {.name = "access",
     .may_include = {},
     .why = "who may call is decided from what a call shows; what is called and by which wire it does not know"},
    {.name = "spec",
     .may_include = {},
     .why = "options are values with one row a field: whoever trains, checks, stores or shows them includes them"},
    {.name = "data/store",
     .may_include = {},
     .why = "the file on disk serves whatever writes, samples or batches it, so it knows none of them"},
    {.name = "data/source",
     .may_include = {"data/store"},
     .why = "readers of foreign files know the types of a store and not what becomes of their rows"},
    {.name = "data/sort", .may_include = {"data/store"}, .why = "sorting knows edges, not where they come from"},
    {.name = "data/disk", .may_include = {}, .why = "it reads pages of a file and knows nothing of what they hold"},
    {.name = "data/import",
     .may_include = {"data/source", "data/sort", "data/store"},
     .why = "an importer reads, sorts and writes; who asked for it and who reads the store is none of its business"},
    {.name = "data/sampling", .may_include = {"data/store"}, .why = "samplers draw from a store, however it was made"},
    {.name = "data/rows",
     .may_include = {"data/disk", "data/sampling", "data/store"},
     .why = "rows are read and kept for whoever samples them; what batches are made of them it does not know"},
    {.name = "data/batching",
     .may_include = {"data/rows", "data/sampling", "data/store"},
     .why = "a batch is gathered from a store, however it was made"},
    {.name = "data/catalog",
     .may_include = {"data/import", "data/source", "data/store"},
     .why = "the catalog keeps stores and runs imports; it does not train"},
    {.name = "graphcache",
     .may_include = {},
     .why = "policy and ladder are pure functions over shapes; executables stand behind an interface"},
    {.name = "nn/kernels",
     .may_include = {},
     .why = "kernels work on plain arrays: what calls them knows tensors and threads"},
    {.name = "collective", .may_include = {}, .torch = true, .why = "ranks exchange tensors, whatever is in them"},
    {.name = "nn",
     .may_include = {"collective", "nn/kernels"},
     .torch = true,
     .why = "a model is a function of tensors, wherever they come from"},
    {.name = "program",
     .may_include = {"nn/kernels"},
     .torch = true,
     .why = "a program is a function of tensors that a file describes: who trains it and on what it does not know"},
    {.name = "device",
     .may_include = {"collective", "graphcache"},
     .torch = true,
     .why = "a device implements graphcache's interfaces and knows neither jobs nor datasets"},
    {.name = "train",
     .may_include = {"collective", "nn", "program", "data/batching", "data/rows", "data/sampling", "data/store",
                     "graphcache", "device"},
     .torch = true,
     .why = "the loop does not know who asked for it: it reports through RunContext"},
    {.name = "jobs",
     .may_include = {"data/catalog", "data/rows", "data/store", "graphcache", "train/checkpoint_files.h",
                     "train/runner.h"},
     .why = "jobs runs training through train/runner.h only, so that it builds and is tested without torch"},
    {.name = "backup",
     .may_include = {"jobs", "train/checkpoint_files.h"},
     .why = "a backup copies files and the database's rows, and asks no room that runs"},
    {.name = "api",
     .may_include = {"access", "backup", "jobs", "data/catalog", "data/import", "data/source", "data/rows",
                     "data/sampling", "data/store", "graphcache", "train/checkpoint_files.h", "train/peers.h",
                     "train/runner.h"},
     .wire = true,
     .why = "handlers parse, enqueue and read snapshots; of training they see only its torch-free results"},
    {.name = "daemon",
     .may_include = {"access", "api", "backup", "jobs", "data/catalog", "data/rows", "data/store", "graphcache",
                     "train", "device", "nn"},
     .why = "the daemon wires the rooms together and does none of their work"},
};

constexpr char kWireWhy[] = "wire types stop in api/, so that the contract can change without the rooms behind it";
constexpr char kTorchWhy[] =
    "only collective, nn, program, device and train need libtorch, which costs seconds a file and hides protobuf 3.13 "
    "headers";
constexpr char kClashWhy[] = "libtorch ships protobuf 3.13 headers, which must never meet a .pb.h in one file";

bool StartsWith(std::string_view text, std::string_view prefix) { return text.substr(0, prefix.size()) == prefix; }
bool EndsWith(std::string_view text, std::string_view suffix) {
  return text.size() >= suffix.size() && text.substr(text.size() - suffix.size()) == suffix;
}

std::vector<std::string> IncludesOf(const std::string& content) {
  static const std::regex include(R"re((?:^|\n)[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">])re");
  std::vector<std::string> found;
  for (std::sregex_iterator it(content.begin(), content.end(), include), end; it != end; ++it)
    found.push_back((*it)[1]);
  return found;
}

bool IsTorch(std::string_view include) {
  return StartsWith(include, "torch/") || StartsWith(include, "ATen/") || StartsWith(include, "c10/") ||
         StartsWith(include, "caffe2/");
}
bool IsWire(std::string_view include) {
  return EndsWith(include, ".pb.h") || StartsWith(include, "grpcpp/") || StartsWith(include, "grpc/") ||
         StartsWith(include, "google/protobuf/");
}

// Returns the room of a path or include ("nn/ops/dropout.h" -> nn), or null if it belongs to none.
const Room* FindRoom(const std::string& path) {
  const auto* found = std::find_if(std::begin(kRooms), std::end(kRooms),
                                   [&](const Room& room) { return StartsWith(path, std::string(room.name) + "/"); });
  return found == std::end(kRooms) ? nullptr : found;
}

bool MayInclude(const Room& room, const std::string& include) {
  const std::string_view target = FindRoom(include)->name;
  const std::string_view name = room.name;
  if (target == name || target == "base" || (target == "telemetry" && name != "base")) return true;
  if (target == "spec" && name != "base" && name != "telemetry") return true;
  return std::any_of(room.may_include.begin(), room.may_include.end(),
                     [&](const std::string& allowed) { return allowed == target || allowed == include; });
}

std::string Joined(std::initializer_list<std::string_view> parts) {
  std::string text;
  for (const std::string_view part : parts) text += part;
  return text;
}

// Returns the first chain of includes from `path` to an outside header that `wanted` accepts, such as "a.h -> b.h ->
// torch/x.h". Empty if there is none.
std::string ChainTo(const Tree& tree, const std::string& path, bool (*wanted)(std::string_view),
                    std::set<std::string>& seen) {
  if (!seen.insert(path).second) return "";
  const auto file = tree.find(path);
  if (file == tree.end()) return "";
  for (const std::string& include : IncludesOf(file->second)) {
    if (wanted(include)) return Joined({path, " -> ", include});
    const std::string rest = ChainTo(tree, include, wanted, seen);
    if (!rest.empty()) return Joined({path, " -> ", rest});
  }
  return "";
}
std::string ChainTo(const Tree& tree, const std::string& path, bool (*wanted)(std::string_view)) {
  std::set<std::string> seen;
  return ChainTo(tree, path, wanted, seen);
}

// Returns one line for each breach, with its reason.
std::vector<std::string> Breaches(const Tree& tree) {
  std::vector<std::string> breaches;
  for (const auto& [path, content] : tree) {
    const std::string torch = ChainTo(tree, path, IsTorch), wire = ChainTo(tree, path, IsWire);
    if (!torch.empty() && !wire.empty()) {
      breaches.push_back(Joined({path, ": sees torch (", torch, ") and the wire (", wire, "): ", kClashWhy}));
    }
    const Room* room = FindRoom(path);
    if (room == nullptr) {
      breaches.push_back(path + ": its room is not in the table");
      continue;
    }
    for (const std::string& include : IncludesOf(content)) {
      if (FindRoom(include) != nullptr && !MayInclude(*room, include)) {
        breaches.push_back(Joined({path, ": includes ", include, ": ", room->why}));
      }
      if (IsWire(include) && !room->wire) breaches.push_back(Joined({path, ": includes ", include, ": ", kWireWhy}));
    }
    if (!room->torch && !torch.empty() && wire.empty()) {
      breaches.push_back(Joined({path, ": sees torch (", torch, "): ", kTorchWhy}));
    }
  }
  return breaches;
}

Tree ReadServer() {
  const std::filesystem::path root = std::filesystem::path(PERMAFROST_SOURCE_DIR) / "server";
  Tree tree;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    const std::string extension = entry.path().extension().string();
    if (extension != ".h" && extension != ".cc") continue;
    std::ifstream in(entry.path());
    tree[entry.path().lexically_relative(root).generic_string()].assign(std::istreambuf_iterator<char>(in), {});
  }
  return tree;
}

TEST(Rooms, EveryIncludeUnderServerIsInTheTable) {
  const Tree tree = ReadServer();
  ASSERT_TRUE(tree.contains("daemon/main.cc") && tree.contains("train/runner.h"))
      << "read the wrong folder: " << PERMAFROST_SOURCE_DIR;
  EXPECT_THAT(Breaches(tree), testing::IsEmpty());
}

TEST(Rooms, HeadersThatTorchFreeRoomsUseAreTorchFree) {
  const Tree tree = ReadServer();
  for (const Room& room : kRooms) {
    for (const std::string& header : room.may_include) {
      if (room.torch || !EndsWith(header, ".h")) continue;
      EXPECT_TRUE(tree.contains(header)) << header << " is in the table of " << room.name << " but not there";
      EXPECT_EQ(ChainTo(tree, header, IsTorch), "") << room.name << " includes it: " << kTorchWhy;
    }
  }
}

// Tests the checker itself: each planted breach gives one line that names the file and the include.
TEST(Rooms, PlantedBreachesAreFound) {
  const Tree sound = {
      {"daemon/main.cc", "#include \"api/service.h\"\n#include \"train/loop.h\"\n"},
      {"api/service.h", "#include <grpcpp/grpcpp.h>\n#include \"jobs/job.h\"\n"},
      {"jobs/job.h", "#include \"train/runner.h\"\n"},
      {"train/runner.h", "#include \"nn/loss.h\"\n#include \"data/store/set.h\"\n"},
      {"train/loop.cc", "#include \"nn/model.h\"\n"},
      {"nn/loss.h", "#include <string>\n"},
      {"nn/model.h", "#include <ATen/core/Tensor.h>\n#include \"base/status.h\"\n"},
      {"data/store/set.h", "#include \"base/status.h\"\n#include \"telemetry/log.h\"\n"},
      {"base/status.h", "// #include \"api/service.h\" in a comment is none\n"},
  };
  // main.cc sees the wire but not torch, because train/loop.h is not in this tree.
  ASSERT_THAT(Breaches(sound), testing::IsEmpty());

  const struct {
    const char* why;
    const char* path;
    const char* content;
    const char* names;
  } kCases[] = {
      {"a wrong arrow", "data/store/batch.cc", "#include \"nn/loss.h\"\n", "data/store/batch.cc: includes nn/loss.h"},
      {"an arrow upward within data", "data/store/y.h", "#include \"data/import/import.h\"\n",
       "data/store/y.h: includes data/import/import.h"},
      {"a wrong arrow with spaces", "nn/x.h", " #  include  \"data/store/set.h\"\n",
       "nn/x.h: includes data/store/set.h"},
      {"base sees no telemetry", "base/x.h", "#include \"telemetry/log.h\"\n", "base/x.h: includes telemetry/log.h"},
      {"jobs may use train's interface only", "jobs/x.cc", "#include \"train/loop.h\"\n",
       "jobs/x.cc: includes train/loop.h"},
      {"wire outside api", "jobs/x.cc", "#include \"permafrost/v1/job.pb.h\"\n", "includes permafrost/v1/job.pb.h"},
      {"gRPC outside api", "train/x.cc", "#include <grpcpp/server.h>\n", "includes grpcpp/server.h"},
      {"torch in a torch-free room", "data/store/x.cc", "#include <torch/library.h>\n", "data/store/x.cc: sees torch"},
      {"torch through a header that jobs may include", "train/checkpoint_files.h", "#include <c10/core/Device.h>\n",
       "jobs/y.h: sees torch (jobs/y.h -> train/checkpoint_files.h -> c10/core/Device.h)"},
      {"torch and the wire meet in main", "daemon/main2.cc", "#include \"api/service.h\"\n#include \"nn/model.h\"\n",
       "daemon/main2.cc: sees torch (daemon/main2.cc -> nn/model.h -> ATen/core/Tensor.h)"},
      {"a room that nobody planned", "util/x.h", "", "util/x.h: its room is not in the table"},
  };
  for (const auto& c : kCases) {
    Tree tree = sound;
    tree["jobs/y.h"] = "#include \"train/checkpoint_files.h\"\n";
    tree[c.path] = c.content;
    EXPECT_THAT(Breaches(tree), testing::ElementsAre(testing::HasSubstr(c.names))) << c.why;
  }
}

}  // namespace
}  // namespace permafrost
