// Compiles CUDA C++ by NVRTC, which needs neither a GPU nor NVIDIA's driver. The library is opened at run time:
// nothing is linked, and no NVRTC header is needed.
// Threads: one at a time.
#pragma once

#include <dlfcn.h>
#include <glob.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace permafrost::nn {

class Nvrtc {
 public:
  struct Outcome {
    bool compiled = false;
    std::string log;
    std::vector<char> code;  // a cubin
  };

  // Opens the library that $PERMAFROST_NVRTC names. If that is unset, opens the one in .deps (deploy/install-deps),
  // or else the system's.
  Nvrtc() {
    for (const std::string& file : Candidates()) {
      library_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (library_ == nullptr) continue;
      // NVRTC opens its builtins library by name, which succeeds if that library is already loaded.
      for (const std::string& part : Matching(std::filesystem::path(file).parent_path() / "libnvrtc-builtins.so.*")) {
        static_cast<void>(dlopen(part.c_str(), RTLD_NOW | RTLD_GLOBAL));
      }
      return;
    }
  }
  bool is_present() const { return library_ != nullptr; }

  // `architecture` is a name such as "sm_90". The options are those of device/cuda/module/cuda_module.cc.
  Outcome Compile(const std::string& source, const std::string& architecture) const {
    Outcome outcome;
    void* program = nullptr;
    if (Call<int (*)(void**, const char*, const char*, int, const char* const*, const char* const*)>(
            "nvrtcCreateProgram")(&program, source.c_str(), "region.cu", 0, nullptr, nullptr) != 0) {
      outcome.log = "NVRTC makes no program";
      return outcome;
    }
    const std::string option = "--gpu-architecture=" + architecture;
    const char* const options[] = {option.c_str(), "--std=c++17"};
    outcome.compiled = Call<int (*)(void*, int, const char* const*)>("nvrtcCompileProgram")(program, 2, options) == 0;
    const std::vector<char> log = Read(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog");
    outcome.log = std::string(log.data(), log.empty() ? 0 : log.size() - 1);  // the log ends with a null byte
    if (outcome.compiled) outcome.code = Read(program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN");
    Call<int (*)(void**)>("nvrtcDestroyProgram")(&program);
    return outcome;
  }

 private:
  static std::vector<std::string> Matching(const std::string& pattern) {
    std::vector<std::string> found;
    glob_t files{};
    if (glob(pattern.c_str(), 0, nullptr, &files) == 0) found.assign(files.gl_pathv, files.gl_pathv + files.gl_pathc);
    globfree(&files);
    return found;
  }
  static std::vector<std::string> Candidates() {
    if (const char* const named = std::getenv("PERMAFROST_NVRTC"); named != nullptr) return {named};
    std::vector<std::string> files =
        Matching(PERMAFROST_SOURCE_DIR "/.deps/venv*/lib/python3.*/site-packages/nvidia/cu13/lib/libnvrtc.so.13");
    files.emplace_back("libnvrtc.so.13");
    return files;
  }
  template <class Function>
  Function Call(const char* name) const {
    void* const found = dlsym(library_, name);
    if (found == nullptr) std::abort();  // the library is not NVRTC 13
    return reinterpret_cast<Function>(found);
  }
  std::vector<char> Read(void* program, const char* size_of, const char* content_of) const {
    size_t size = 0;
    if (Call<int (*)(void*, size_t*)>(size_of)(program, &size) != 0) return {};
    std::vector<char> content(size);
    if (Call<int (*)(void*, char*)>(content_of)(program, content.data()) != 0) return {};
    return content;
  }

  void* library_ = nullptr;  // stays open until the process ends
};

}  // namespace permafrost::nn
