// A graph of a CUDA device, and what else of libtorch's CUDA half a capture needs. The implementation is a module that
// is loaded at run time (cuda/module), so that one program serves machines with and without a GPU; tests have their
// own. Threads: the device thread.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

#include <functional>
#include <memory>

#include "device/staging.h"

namespace permafrost::device {

// One capture and its replays. Exceptions of the device, c10::Error, pass through all methods.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  // Begins to capture what this thread gives to its current stream, which is not the default one. Memory for it comes
  // from `pool`, which other live graphs may share. If it throws, the allocator is as before.
  virtual void BeginCapture(c10::MempoolId_t pool) = 0;
  // Ends the capture and makes it ready to be replayed. If it throws, the stream captures no longer, the allocator
  // records no longer, and this graph is of no more use.
  virtual void EndCapture() = 0;
  // Once EndCapture has returned. Enqueues the work on the current stream.
  virtual void Replay() = 0;
};

// Everything that a GraphCapturer asks a device for.
struct GraphDevice {
  c10::Device device;
  std::function<std::unique_ptr<DeviceGraph>()> make_graph;
  // The id of a pool that no graph has used yet. A pool ends with its last graph, and libtorch refuses its id then.
  std::function<c10::MempoolId_t()> new_pool;
  // Gives free blocks of the allocator back to the driver.
  std::function<void()> empty_cache;
  StagingOptions staging;
};

}  // namespace permafrost::device
