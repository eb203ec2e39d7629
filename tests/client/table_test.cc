#include "client/style.h"

#include "gtest/gtest.h"

namespace permafrost::client {
namespace {

TEST(Table, AlignsByTheWidestCell) {
  EXPECT_EQ(RenderTable({{"JOB"}, {"EPOCH", Align::kRight}, {"STATE"}},
                        {{"a", "3/20", "running"}, {"long-name", "20/20", "ok"}}, {}),
            "JOB        EPOCH  STATE\n"
            "a           3/20  running\n"
            "long-name  20/20  ok\n");
}

TEST(Table, WideCharactersCountOnce) {
  EXPECT_EQ(RenderTable({{"A"}, {"B"}}, {{"1 ± 2", "x"}, {"12345", "y"}}, {}),
            "A      B\n"
            "1 ± 2  x\n"
            "12345  y\n");
}

TEST(Table, ColoursDoNotShiftColumns) {
  const RenderStyle color{.color = true};
  EXPECT_EQ(RenderTable({{"A"}, {"B"}}, {{{"x", Tone::kBad}, "y"}, {"xx", "z"}}, color),
            "\x1b[1mA\x1b[0m   \x1b[1mB\x1b[0m\n"
            "\x1b[31mx\x1b[0m   y\n"
            "xx  z\n");
}

TEST(Table, CellsStayOnOneLine) {
  EXPECT_EQ(RenderTable({{"A"}}, {{"x\ny\x1b[0m"}}, {}), "A\nx y [0m\n");
  EXPECT_EQ(RenderFields({{"error", "x\ny"}}, {}), "  error  x y\n");
}

TEST(Table, FieldsAlignTheirValues) {
  EXPECT_EQ(RenderFields({{"a", "1"}, {"longer", "2"}, {"empty", ""}}, {}),
            "  a       1\n"
            "  longer  2\n"
            "  empty\n");
}

}  // namespace
}  // namespace permafrost::client
