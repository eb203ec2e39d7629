#include "nn/models/node_model.h"

#include <c10/util/Exception.h>

#include "nn/models/gcn.h"
#include "nn/models/sage.h"

namespace permafrost::nn {

std::unique_ptr<NodeModel> NodeModel::Create(const NodeModelOptions& options, uint64_t seed, at::Device device) {
  switch (options.model.architecture) {
    case Architecture::kSage:
      return std::make_unique<Sage>(options, seed, device);
    case Architecture::kGcn:
      return std::make_unique<Gcn>(options, seed, device);
    case Architecture::kGine:
      break;
  }
  TORCH_CHECK(false, "NodeModel: ", kArchitectureNames.Name(options.model.architecture), " is not node-level");
}

}  // namespace permafrost::nn
