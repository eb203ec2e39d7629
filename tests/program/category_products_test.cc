// Products of each edge's row with the matrix of the edge's category. The rewritten program is equal up to rounding,
// and gathers no matrix per edge.
#include "program/rewritings.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "program/rewritten.h"
#include "program/typed_writer.h"

namespace permafrost::program {
namespace {

// Multiplies one row per edge with that edge's matrix. The matrices, [E, 16, 5], are a view of the 80 columns of
// `gathered`.
ValueIndex ProductOf(TypedWriter& w, ValueIndex rows, ValueIndex gathered, const std::string& op) {
  const std::vector<Size> sizes = {TypedWriter::Edges(), TypedWriter::Of(16), TypedWriter::Of(5)};
  const ValueIndex matrices = w.Shape("view.default", gathered, sizes, {{"size", IntsOf({-1, 16, 5})}});
  const std::vector<Size> of_row = {TypedWriter::Edges(), TypedWriter::Of(1), TypedWriter::Of(16)};
  const ValueIndex row = w.Shape("unsqueeze.default", rows, of_row, {{"dim", int64_t{1}}});
  return w.Shape(op, row, {TypedWriter::Edges(), TypedWriter::Of(1), TypedWriter::Of(5)},
                 {{op == "bmm.default" ? "mat2" : "other", Ref{matrices}}});
}

TEST(WithCategoryProducts, MultipliesNodesByTheMatricesOfAllCategories) {
  for (const std::string op : {"matmul.default", "bmm.default"}) {
    TypedWriter w;
    const ValueIndex matrices = w.Embedding(w.Table(4, 80), w.kinds);
    const Program program =
        ExpectRewritten(WithCategoryProducts, w.Return({ProductOf(w, w.Select(w.h, w.sources), matrices, op)}));
    EXPECT_EQ(Count(program, op), 0) << op;
    EXPECT_EQ(Count(program, "embedding.default"), 0) << op;
  }
}

TEST(WithCategoryProducts, LeavesOtherProductsAlone) {
  const struct {
    const char* why;
    ValueIndex (*product)(TypedWriter& w);
  } kCases[] = {
      {"of many categories",
       [](TypedWriter& w) {
         return ProductOf(w, w.Select(w.h, w.sources), w.Embedding(w.Table(17, 80), w.kinds), "bmm.default");
       }},
      {"of rows that nothing gathered",
       [](TypedWriter& w) {
         const ValueIndex rows = w.Unary("exp.default", w.Select(w.h, w.sources));
         return ProductOf(w, rows, w.Embedding(w.Table(4, 80), w.kinds), "bmm.default");
       }},
      {"of matrices that are written to",
       [](TypedWriter& w) {
         const ValueIndex matrices = w.Embedding(w.Table(4, 80), w.kinds);
         w.Write(matrices);
         return ProductOf(w, w.Select(w.h, w.sources), matrices, "bmm.default");
       }},
      {"by an index that may be negative",
       [](TypedWriter& w) {
         return ProductOf(w, w.Index(w.h, w.sources), w.Embedding(w.Table(4, 80), w.kinds), "bmm.default");
       }},
      {"of computed categories, which may be negative",
       [](TypedWriter& w) {
         const ValueIndex matrices = w.Embedding(w.Table(4, 80), w.Neg(w.kinds));
         return ProductOf(w, w.Select(w.h, w.sources), matrices, "bmm.default");
       }},
  };
  for (const auto& c : kCases) {
    TypedWriter w;
    EXPECT_FALSE(WithCategoryProducts(*w.Return({c.product(w)}))) << c.why;
  }
}

}  // namespace
}  // namespace permafrost::program
