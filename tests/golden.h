// Golden files: approved output of tests, kept in the tree as text.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace permafrost {

inline constexpr char kWriteGoldens[] = "PERMAFROST_WRITE_GOLDENS";

// Returns true if the next kLines lines of both are equal, or if both end at the same place within them.
inline bool GoOnAlike(const std::vector<std::string>& want, size_t i, const std::vector<std::string>& got, size_t j) {
  constexpr size_t kLines = 3;  // a single equal line may occur anywhere
  for (size_t k = 0; k < kLines; ++k) {
    const bool ends = i + k >= want.size(), got_ends = j + k >= got.size();
    if (ends || got_ends) return ends && got_ends;
    if (want[i + k] != got[j + k]) return false;
  }
  return true;
}

// Returns the fewest lines to skip in `want` and in `got` after which both continue alike. Returns the rest of both
// if there is no such place within kFar lines.
inline std::pair<size_t, size_t> SkipToAlike(const std::vector<std::string>& want, size_t i,
                                             const std::vector<std::string>& got, size_t j) {
  constexpr size_t kFar = 1000;
  for (size_t skipped = 1; skipped < kFar; ++skipped) {
    for (size_t of_want = 0; of_want <= skipped; ++of_want) {
      const size_t of_got = skipped - of_want;
      if (i + of_want > want.size() || j + of_got > got.size()) continue;
      if (GoOnAlike(want, i + of_want, got, j + of_got)) return {of_want, of_got};
    }
  }
  return {want.size() - i, got.size() - j};
}

// Returns the first lines that differ, each with its number. "-" marks lines that only `want` has, and "+" lines that
// only `got` has. Empty if the texts are equal.
inline std::string FirstDifferences(const std::string& want_text, const std::string& got_text) {
  constexpr int kMost = 40;
  const std::vector<std::string> want = absl::StrSplit(want_text, '\n'), got = absl::StrSplit(got_text, '\n');
  std::string out;
  int told = 0;
  const auto tell = [&](char sign, size_t line, const std::string& text) {
    if (told++ < kMost) absl::StrAppend(&out, std::string(1, sign), line + 1, ": ", text, "\n");
  };
  for (size_t i = 0, j = 0; told < kMost && (i < want.size() || j < got.size());) {
    if (i < want.size() && j < got.size() && want[i] == got[j]) {
      ++i, ++j;
      continue;
    }
    const auto [of_want, of_got] = SkipToAlike(want, i, got, j);
    for (const size_t end = i + of_want; i < end; ++i) tell('-', i, want[i]);
    for (const size_t end = j + of_got; j < end; ++j) tell('+', j, got[j]);
  }
  if (told >= kMost) absl::StrAppend(&out, "... and what comes after these lines was not compared\n");
  return out;
}

// Breaks JSON without white space into lines that can be compared. Changes nothing else.
inline std::string OneFieldALine(const std::string& json) {
  return absl::StrReplaceAll(json, {{",\"", ",\n\""}, {":{", ":\n{"}});
}

inline std::optional<std::string> ReadText(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string{std::istreambuf_iterator<char>(file), {}};
}

// Compares `got` with the file `name` below tests/, such as "api/goldens/rejections.txt". If the environment variable
// PERMAFROST_WRITE_GOLDENS is set, writes that file instead.
inline void ExpectGolden(const std::string& name, const std::string& got) {
  const std::filesystem::path path = std::filesystem::path(PERMAFROST_SOURCE_DIR) / "tests" / name;
  if (std::getenv(kWriteGoldens) != nullptr) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << got;
    ASSERT_TRUE(file.flush()) << path << " cannot be written";
    return;
  }
  const std::string how = absl::StrCat("\nWhere the change is meant, this test writes the file anew: run it with ",
                                       kWriteGoldens, "=1, and read the difference before you commit it.");
  const std::optional<std::string> want = ReadText(path);
  ASSERT_TRUE(want) << path << " cannot be read." << how;
  EXPECT_TRUE(*want == got) << "tests/" << name << " differs (-: the file, +: now):\n"
                            << FirstDifferences(*want, got) << how;
}

}  // namespace permafrost
