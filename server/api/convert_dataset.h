// Datasets between the wire and the domain.
// Threads: pure functions.
#pragma once

#include "data/catalog/catalog.h"
#include "permafrost/v1/dataset.pb.h"

namespace permafrost::api {

v1::Dataset DatasetToWire(const data::Dataset& dataset);

}  // namespace permafrost::api
