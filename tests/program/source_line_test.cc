#include "program/program.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace permafrost::program {
namespace {

constexpr char kLibrary[] =
    "  File \"/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py\", line 134, in forward\n"
    "    return F.linear(input, self.weight, self.bias)\n";
constexpr char kUser[] = "  File \"/home/user/model.py\", line 12, in forward\n    h = self.lin(h)\n";

TEST(SourceLine, IsTheInnermostOfTheUser) {
  const std::string stack = std::string(kUser) + kLibrary;
  EXPECT_EQ(SourceLine(stack, "L__self__,,__main__.Net;L__self__lin,lin,torch.nn.modules.linear.Linear"),
            "model.py:12 in forward: h = self.lin(h), in lin (Linear)");
  EXPECT_EQ(SourceLine(std::string(kUser) + kUser, ""), "model.py:12 in forward: h = self.lin(h)");
}

TEST(SourceLine, IsALibrarysWhereThereIsNoOther) {
  EXPECT_EQ(SourceLine(kLibrary, ""), "linear.py:134 in forward: return F.linear(input, self.weight, self.bias)");
}

TEST(SourceLine, IsOneLineWhateverTheFileSays) {
  EXPECT_EQ(SourceLine("", ""), "");
  EXPECT_EQ(SourceLine("", "L__self__,,__main__.Net"), "");
  EXPECT_EQ(SourceLine("", "a,convs.0,x.y.GINEConv"), "in convs.0 (GINEConv)");
  EXPECT_EQ(SourceLine("File \"a\x01.py\", line 3", ""), "a\\x01.py:3");
  EXPECT_LT(SourceLine("File \"" + std::string(100'000, 'x') + "\", line 3\n" + std::string(100'000, 'y'), "").size(),
            300u);
}

TEST(JoinedLines, NamesEachPlaceOnce) {
  EXPECT_EQ(JoinedLines({}), "");
  const std::string first = "net.py:12 in forward: h = self.norm(h), in convs.0 (GINEConv)";
  EXPECT_EQ(JoinedLines({{first}}), first);
  EXPECT_EQ(JoinedLines({{first, "net.py:12 in forward: h = self.norm(h), in convs.0.nn (Linear)"}}), first);
  EXPECT_EQ(JoinedLines({{first, "net.py:14 in f: x", "conv.py:3", "net.py:14 in f: y"}}),
            first + "; with net.py:14, conv.py:3");
}

TEST(JoinedLines, LeavesOutThoseBeyondTheEighth) {
  std::vector<std::string> lines;
  lines.reserve(12);
  for (int i = 0; i < 12; ++i) lines.push_back("net.py:" + std::to_string(i));
  EXPECT_EQ(JoinedLines(lines),
            "net.py:0; with net.py:1, net.py:2, net.py:3, net.py:4, net.py:5, net.py:6, net.py:7, net.py:8 and 3 more");
}

}  // namespace
}  // namespace permafrost::program
