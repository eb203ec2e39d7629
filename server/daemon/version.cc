#include "daemon/version.h"

namespace permafrost {

std::string_view Version() { return PERMAFROST_VERSION; }
std::string_view GitCommit() { return PERMAFROST_GIT_COMMIT; }

}  // namespace permafrost
