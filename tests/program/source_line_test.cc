#include "program/source_line.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace permafrost::program
