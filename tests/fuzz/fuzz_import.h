// The part that the fuzz targets of the importers share: a source of given files is imported, and a store that came of
// it opened and verified. Aborts where an import that succeeded left no whole store, or one that failed said no line of
// text.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "data/source/import_options.h"
#include "fuzz_input.h"

namespace permafrost::data {

using FuzzFiles = std::vector<std::pair<std::string, std::string>>;  // path below the source -> bytes

// `good` with its files' bytes in turn replaced by the parts of `rest`, which stand between bytes of 1: an empty part
// leaves the good one, "-" takes the file away. `packed`: a part is the file's packed form, whatever it holds.
FuzzFiles Parted(const FuzzFiles& good, std::string rest, bool packed = false);

// `source`: the one of `files` that is the source, or empty for their directory.
void FuzzImport(const FuzzFiles& files, const std::string& source, ImportOptions options);

}  // namespace permafrost::data
