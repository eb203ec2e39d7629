// A prepared batch as tensors on the device.
#pragma once

#include <c10/core/Device.h>

#include "data/batch.h"
#include "nn/graph_batch.h"

namespace permafrost::train {

// On the CPU the tensors share the host batch's memory, which must outlive them; elsewhere they are copies.
nn::GraphBatch ToDevice(const data::PaddedBatch& host, const data::GraphSetSummary& summary, c10::Device device);

}  // namespace permafrost::train
