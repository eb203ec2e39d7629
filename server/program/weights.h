// The tensors of an archive: parameters, buffers and constants of its forms.
// Threads: pure functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "program/archive.h"
#include "program/program.h"

namespace permafrost::program {

// Reads the tensors of each program's state, in its order, on the CPU. Tensors of equal file, type and shape are one
// tensor: so are tied parameters, and the parameters and buffers that the forms share by name. Parameters require
// gradients where the file says so. Errors: InvalidArgument or DataLoss that names the tensor.
absl::StatusOr<std::vector<std::vector<at::Tensor>>> ReadWeights(const Archive& archive,
                                                                 const std::vector<Program>& programs,
                                                                 const Limits& limits);

}  // namespace permafrost::program
