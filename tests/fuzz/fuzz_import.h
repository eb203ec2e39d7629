// The part that the importers' fuzz targets share. It imports a source of given files, then opens and verifies the
// store. Aborts if a successful import left no complete store, or if a failed one has no one-line message.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "data/source/import_options.h"
#include "fuzz_input.h"

namespace permafrost::data {

using FuzzFiles = std::vector<std::pair<std::string, std::string>>;  // (path below the source, bytes)

// Returns `good` with the bytes of its files replaced, in order, by the parts of `rest`. Bytes of value 1 separate
// the parts. An empty part keeps the good file, and "-" removes the file. With `packed`, each part stands for the
// gzip form of its file, whatever it holds.
FuzzFiles Parted(const FuzzFiles& good, std::string rest, bool packed = false);

// `source` names the one of `files` to import. If it is empty, the directory of all files is imported.
void FuzzImport(const FuzzFiles& files, const std::string& source, ImportOptions options);

}  // namespace permafrost::data
