// Kernels whose source a test generates. The C++ compiler that built the test compiles them for the host, on
// cuda_on_host.h, into a library that the test opens. Under AddressSanitizer the library is built with
// AddressSanitizer too.
// Threads: one at a time.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "temp_dir.h"

namespace permafrost::nn {

#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define PERMAFROST_ADDRESS_SANITIZER
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(PERMAFROST_ADDRESS_SANITIZER)
inline constexpr char kSanitizerFlag[] = " -fsanitize=address";
#else
inline constexpr char kSanitizerFlag[] = "";
#endif

class HostKernels {
 public:
  // The order in which the threads of a block run. A kernel that lacks a barrier may give right results in one order
  // and wrong ones in the other.
  enum class Order { kForward, kReverse };

  // `source` is the text of all kernels, and `names` lists the kernels that are launched. Fails the test if the
  // source does not compile.
  HostKernels(const std::string& source, const std::vector<std::string>& names) {
    const std::string base = (folder_.path() / "kernels").string();
    std::ofstream file(base + ".cc");
    file << "#include \"nn/gpu/cuda_on_host.h\"\n" << source << EntryOf(names);
    EXPECT_TRUE(file.flush()) << base;
    // The flags round each product before it is added, as PyTorch's operators do.
    const std::string command = absl::StrCat(
        "'", PERMAFROST_CXX_COMPILER, "' -std=c++20 -O1 -ffp-contract=off -fPIC -shared", kSanitizerFlag, " -I'",
        PERMAFROST_SOURCE_DIR, "/server' -I'", PERMAFROST_SOURCE_DIR, "/tests' '", base, ".cc' -o '", base, ".so'");
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    library_ = dlopen((base + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ != nullptr) launch_ = reinterpret_cast<LaunchFunction>(dlsym(library_, "launch_kernel"));
    EXPECT_NE(launch_, nullptr) << base;
  }
  HostKernels(const HostKernels&) = delete;
  HostKernels& operator=(const HostKernels&) = delete;
  ~HostKernels() {
    if (library_ != nullptr) dlclose(library_);
  }

  // `arguments` holds the address of each argument.
  void Launch(const std::string& kernel, unsigned blocks, unsigned threads, void** arguments, Order order) const {
    ASSERT_NE(launch_, nullptr);
    launch_(kernel.c_str(), blocks, threads, arguments, order == Order::kReverse);
  }

 private:
  using LaunchFunction = void (*)(const char* kernel, unsigned blocks, unsigned threads, void** arguments,
                                  bool reversed);

  static std::string EntryOf(const std::vector<std::string>& names) {
    std::string text =
        "extern \"C\" void launch_kernel(const char* kernel, unsigned blocks, unsigned threads, void** arguments,\n"
        "                              bool reversed) {\n"
        "  using namespace cuda_on_host;\n"
        "  static const std::map<std::string, Kernel> kernels{\n";
    for (const std::string& name : names) absl::StrAppend(&text, "      {\"", name, "\", KernelOf(", name, ")},\n");
    return text +
           "  };\n"
           "  HostLauncher(kernels, reversed ? Order::kReverse : Order::kForward)\n"
           "      .Launch(kernel, {blocks, 1}, {threads, 1}, arguments);\n"
           "}\n";
  }

  TempDir folder_;
  void* library_ = nullptr;
  LaunchFunction launch_ = nullptr;
};

}  // namespace permafrost::nn
