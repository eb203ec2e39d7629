// The options of an import that each format uses. An option that it does not use is refused, not passed over.
// Threads: pure.
#pragma once

#include "base/status.h"
#include "data/source/import_options.h"

namespace permafrost::data {

// Adds a violation for each option that differs from its default and that `format` does not use; kAuto: none.
void CheckFormatOptions(ImportFormat format, const ImportOptions& options, Violations& violations);

}  // namespace permafrost::data
