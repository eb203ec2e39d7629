// Describes a program's archive for people, from the program itself.
// Threads: pure functions of the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "absl/status/statusor.h"
#include "base/resources.h"
#include "spec/program_description.h"

namespace permafrost::train {

// Loads the archive and describes it: Runner::DescribeProgram, with its contract. Tensors take no more memory than
// their file has bytes. So a file larger than `limit`, or than the memory left, is refused unread.
absl::StatusOr<spec::ProgramDescription> DescribeProgram(const std::filesystem::path& archive, uint64_t limit,
                                                         const std::optional<MemoryLeft>& memory);

}  // namespace permafrost::train
