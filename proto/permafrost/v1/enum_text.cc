#include "permafrost/v1/enum_text.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace permafrost {
namespace {

using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;

// Returns the common prefix of the names, such as "LOSS_" for LOSS_UNSPECIFIED, LOSS_L1, ...
absl::string_view Prefix(const EnumDescriptor& type) { return absl::StripSuffix(type.value(0)->name(), "UNSPECIFIED"); }

std::string ShortName(const EnumValueDescriptor& value) {
  return absl::StrReplaceAll(absl::AsciiStrToLower(absl::StripPrefix(value.name(), Prefix(*value.type()))),
                             {{"_", "-"}});
}

}  // namespace

std::string EnumShortName(const EnumDescriptor& type, int value) {
  const EnumValueDescriptor* known = type.FindValueByNumber(value);
  return known == nullptr ? absl::StrCat(value) : ShortName(*known);
}

std::optional<int> ParseEnum(const EnumDescriptor& type, std::string_view name) {
  const std::string wanted = absl::StrReplaceAll(absl::string_view(name.data(), name.size()), {{"_", "-"}});
  for (int i = 1; i < type.value_count(); ++i) {
    const EnumValueDescriptor& value = *type.value(i);
    if (name == value.name() || wanted == ShortName(value)) return value.number();
  }
  return std::nullopt;
}

std::vector<std::string> EnumShortNames(const EnumDescriptor& type) {
  std::vector<std::string> names;
  for (int i = 1; i < type.value_count(); ++i) names.push_back(ShortName(*type.value(i)));
  return names;
}

}  // namespace permafrost
