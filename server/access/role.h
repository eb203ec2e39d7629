// The rights of a caller: each role may do all that the ones before it may.
// Threads: values.
#pragma once

#include "base/enum_names.h"

namespace permafrost::access {

enum class Role {
  kViewer,    // reads
  kOperator,  // jobs, their graph caches, datasets and uploads
  kAdmin,     // drain, backup and tokens
};
inline constexpr EnumNames<Role, 3> kRoleNames{
    {{{Role::kViewer, "viewer"}, {Role::kOperator, "operator"}, {Role::kAdmin, "admin"}}}};

}  // namespace permafrost::access
