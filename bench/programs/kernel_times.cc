// Times the kernels of a process on an NVIDIA GPU by CUPTI, without a change to it: the driver loads this library into
// a process whose environment has CUDA_INJECTION64_PATH=libkernel_times.so. Kernels are counted that begin while the
// file $KERNEL_TIMES_WHILE is there; once it is gone, and was there, $KERNEL_TIMES_TO gets them as JSON:
//   {"dropped": records that CUPTI lost, "launches": [{"graph": id, "launches": n, "span_seconds": s, "kernels": {name:
//   {"calls": n, "seconds": s}}}, ...]}
// for each graph of the device (id 0: kernels outside of graphs). Calls and seconds are totals. span: from the begin of
// a launch's first kernel to the end of its last, summed over launches.
#include <cupti.h>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr size_t kBufferBytes = 8 << 20;
constexpr auto kPoll = std::chrono::milliseconds(1);

struct Kernel {
  std::string name;
  uint64_t begin, end;
  uint32_t graph, launch;
};

std::mutex mutex;
std::vector<Kernel> kernels;

void GiveBuffer(uint8_t** buffer, size_t* size, size_t* most_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  *size = kBufferBytes;
  *most_records = 0;
}

void TakeBuffer(CUcontext /*context*/, uint32_t /*stream*/, uint8_t* buffer, size_t /*size*/, size_t valid) {
  const std::lock_guard lock(mutex);
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
    const auto* const kernel = reinterpret_cast<const CUpti_ActivityKernel10*>(record);
    kernels.push_back({kernel->name, kernel->start, kernel->end, kernel->graphId, kernel->correlationId});
  }
  std::free(buffer);
}

struct Calls {
  uint64_t calls = 0;
  double seconds = 0;
};
struct Launch {
  uint64_t begin = UINT64_MAX, end = 0;
};
struct Graph {
  std::map<std::string, Calls> kernels;
  std::map<uint32_t, Launch> launches;
};

void Write(const char* file, uint64_t begin, uint64_t end) {
  const std::lock_guard lock(mutex);
  std::map<uint32_t, Graph> graphs;
  for (const Kernel& kernel : kernels) {
    if (kernel.begin < begin || kernel.begin > end) continue;
    Graph& graph = graphs[kernel.graph];
    Calls& calls = graph.kernels[kernel.name];
    ++calls.calls;
    calls.seconds += 1e-9 * static_cast<double>(kernel.end - kernel.begin);
    Launch& launch = graph.launches[kernel.launch];
    launch.begin = std::min(launch.begin, kernel.begin);
    launch.end = std::max(launch.end, kernel.end);
  }
  const std::string half = std::string(file) + ".half";
  std::ofstream out(half);
  size_t dropped = 0;
  cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped);
  out << "{\"dropped\": " << dropped << ", \"launches\": [";
  const char* comma = "";
  for (const auto& [id, graph] : graphs) {
    double span = 0;
    for (const auto& [launch, times] : graph.launches) span += 1e-9 * static_cast<double>(times.end - times.begin);
    out << comma << "{\"graph\": " << id << ", \"launches\": " << graph.launches.size()
        << ", \"span_seconds\": " << span << ", \"kernels\": {";
    comma = "";
    for (const auto& [name, calls] : graph.kernels) {
      out << comma << '"' << name << "\": {\"calls\": " << calls.calls << ", \"seconds\": " << calls.seconds << '}';
      comma = ", ";
    }
    out << "}}";
    comma = ", ";
  }
  out << "]}\n";
  out.close();
  std::rename(half.c_str(), file);
}

void Watch(const char* switch_file, const char* to) {
  uint64_t begin = 0, end = 0;
  while (access(switch_file, F_OK) != 0) std::this_thread::sleep_for(kPoll);
  cuptiGetTimestamp(&begin);
  while (access(switch_file, F_OK) == 0) std::this_thread::sleep_for(kPoll);
  cuptiGetTimestamp(&end);
  cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  Write(to, begin, end);
}

}  // namespace

// Called by the driver when it begins.
extern "C" int InitializeInjection() {
  const char *const switch_file = std::getenv("KERNEL_TIMES_WHILE"), *const to = std::getenv("KERNEL_TIMES_TO");
  if (switch_file == nullptr || to == nullptr) return 0;
  // From the beginning: a graph that is made before would be one record.
  if (cuptiActivityRegisterCallbacks(GiveBuffer, TakeBuffer) != CUPTI_SUCCESS ||
      cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) != CUPTI_SUCCESS) {
    return 0;
  }
  std::thread(Watch, switch_file, to).detach();
  return 1;
}
