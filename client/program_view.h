// Programs as people read them.
// Threads: everything here is pure.
#pragma once

#include <string>
#include <vector>

#include "client/job_view.h"
#include "client/style.h"
#include "permafrost/v1/program.pb.h"

namespace permafrost::client {

std::string RenderProgramList(const std::vector<v1::Program>& programs, const ViewTime& time, const RenderStyle& style);

// It shows what the program takes and returns, its tensors with their types, and its operators.
std::string RenderProgram(const v1::Program& program, const ViewTime& time, const RenderStyle& style);

}  // namespace permafrost::client
