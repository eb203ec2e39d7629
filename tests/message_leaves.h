// Finds a message's fields by reflection, and makes other values for them. Tests that no field is forgotten then need
// no list of fields.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/duration.pb.h>
#include <google/protobuf/message.h>
#include <google/protobuf/timestamp.pb.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace permafrost {

// A field and its path from the outermost message. The field is a scalar, an enum, a repeated field, or one of
// Google's own message types, such as Duration.
struct Leaf {
  std::vector<const google::protobuf::FieldDescriptor*> path;
  std::string name;  // such as "optimizer.momentum"

  const google::protobuf::FieldDescriptor* field() const { return path.back(); }

  // Returns the message that holds the field, or null if a message above the field is not set.
  const google::protobuf::Message* HolderIn(const google::protobuf::Message& message) const {
    const google::protobuf::Message* at = &message;
    for (size_t i = 0; i + 1 < path.size(); ++i) {
      if (!at->GetReflection()->HasField(*at, path[i])) return nullptr;
      at = &at->GetReflection()->GetMessage(*at, path[i]);
    }
    return at;
  }
  google::protobuf::Message& MutableHolderIn(google::protobuf::Message& message) const {
    google::protobuf::Message* at = &message;
    for (size_t i = 0; i + 1 < path.size(); ++i) at = at->GetReflection()->MutableMessage(at, path[i]);
    return *at;
  }

  // Returns this field alone as text, so that two messages can be compared in it. Empty if the field is not set.
  std::string Text(const google::protobuf::Message& message) const {
    const google::protobuf::Message* const holder = HolderIn(message);
    if (holder == nullptr) return "";
    const std::unique_ptr<google::protobuf::Message> alone(holder->New());
    alone->CopyFrom(*holder);
    const google::protobuf::Reflection& reflection = *holder->GetReflection();
    std::vector<const google::protobuf::FieldDescriptor*> set;
    reflection.ListFields(*alone, &set);
    for (const auto* other : set) {
      if (other != field()) reflection.ClearField(alone.get(), other);
    }
    return alone->ShortDebugString();
  }
};

inline bool IsValue(const google::protobuf::FieldDescriptor& field) {
  return field.message_type() == nullptr || field.message_type()->file()->package() == "google.protobuf";
}

inline void AddLeaves(const google::protobuf::Descriptor* type, const Leaf& above, std::vector<Leaf>& leaves) {
  for (int i = 0; i < type->field_count(); ++i) {
    Leaf leaf = above;
    leaf.path.push_back(type->field(i));
    leaf.name += (leaf.name.empty() ? "" : ".") + std::string(type->field(i)->name());
    if (IsValue(*type->field(i)) || type->field(i)->is_repeated()) {
      leaves.push_back(std::move(leaf));
    } else {
      AddLeaves(type->field(i)->message_type(), leaf, leaves);
    }
  }
}
inline std::vector<Leaf> LeavesOf(const google::protobuf::Descriptor* type) {
  std::vector<Leaf> leaves;
  AddLeaves(type, {}, leaves);
  return leaves;
}

// Returns several JSON values for a field of this type, so that at least one of them is within the field's bounds.
inline std::vector<std::string> JsonValuesOf(const google::protobuf::FieldDescriptor& field) {
  using google::protobuf::FieldDescriptor;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return {"true", "false"};
    case FieldDescriptor::CPPTYPE_DOUBLE:
    case FieldDescriptor::CPPTYPE_FLOAT:
      return {"0.375", "0.0625", "2.5", "0"};
    case FieldDescriptor::CPPTYPE_UINT64:
      return {"\"18446744073709551615\""};
    case FieldDescriptor::CPPTYPE_ENUM: {
      std::vector<std::string> values;
      // Skips the first value of every enum, which stands for the default.
      for (int i = 1; i < field.enum_type()->value_count(); ++i) {
        values.push_back("\"" + std::string(field.enum_type()->value(i)->name()) + "\"");
      }
      return values;
    }
    case FieldDescriptor::CPPTYPE_STRING:
      return {"\"datasets/other\"", "\"jobs/other\"", "\"programs/other\"", "\"/data/other.safetensors\"",
              "\"convs.1\""};
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return {"\"7.000000005s\"", "\"2033-05-18T03:33:20.000000007Z\""};
    default:
      return {"3", "2", "17", "1001", "0"};
  }
}

// Returns copies of `base` that differ only in this field: one for each value of JsonValuesOf that the type accepts.
template <class M>
std::vector<M> ChangesOf(const M& base, const Leaf& leaf) {
  std::vector<M> changes;
  const google::protobuf::FieldDescriptor& field = *leaf.field();
  for (const std::string& value : JsonValuesOf(field)) {
    std::string list = value;
    if (field.is_repeated()) {
      // Keeps the number of elements, because some fields need one value for each element of another field.
      const google::protobuf::Message* const at = leaf.HolderIn(base);
      const int size = at == nullptr ? 1 : std::max(1, at->GetReflection()->FieldSize(*at, &field));
      for (int i = 1; i < size; ++i) list += ", " + value;
      list.insert(0, "[").append("]");
    }
    M changed = base;
    google::protobuf::Message& holder = leaf.MutableHolderIn(changed);
    const std::unique_ptr<google::protobuf::Message> alone(holder.New());
    const auto parsed = google::protobuf::util::JsonStringToMessage(
        "{\"" + std::string(field.json_name()) + "\": " + list + "}", alone.get());
    if (!parsed.ok()) continue;
    holder.GetReflection()->ClearField(&holder, &field);
    holder.MergeFrom(*alone);
    // Skips a zero if the field cannot distinguish it from an unset field.
    if (const std::string text = leaf.Text(changed); !text.empty() && text != leaf.Text(base))
      changes.push_back(std::move(changed));
  }
  return changes;
}

}  // namespace permafrost
