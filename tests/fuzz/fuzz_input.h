// The parts that all fuzz targets share: reading the input, and aborting if a condition does not hold.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace permafrost {

// Takes values off the end of the fuzzer's input, so that the beginning remains a file.
class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t size) : data_(reinterpret_cast<const char*>(data), size) {}
  uint8_t TakeByte() {
    if (data_.empty()) return 0;
    const auto byte = static_cast<uint8_t>(data_.back());
    data_.pop_back();
    return byte;
  }
  const std::string& rest() const { return data_; }

 private:
  std::string data_;
};

// Aborts if `holds` is false. The fuzzer counts that as a finding.
inline void Check(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: %s\n", what.c_str());
  std::abort();
}

}  // namespace permafrost
