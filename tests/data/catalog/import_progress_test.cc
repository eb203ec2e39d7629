// The progress of the running import, as telemetry reads it.
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <utility>

#include "absl/synchronization/notification.h"
#include "data/catalog/catalog.h"
#include "data/catalog/catalog_fixture.h"

namespace permafrost::data {
namespace {

class ImportProgressTest : public CatalogTest {};

TEST_F(ImportProgressTest, IsThatOfTheRunningImportAndOfNoOther) {
  std::unique_ptr<Catalog> catalog;
  std::optional<double> at_first, after_a_quarter;
  catalog = Open([&](const ImportOptions& options, const std::filesystem::path& directory,
                     const ImportObserver& observer, std::stop_token stop, const ImportLimits& limits) {
    at_first = catalog->import_progress();
    observer({.current_file = "edge.csv", .bytes_read = 1, .bytes_total = 4});
    after_a_quarter = catalog->import_progress();
    return data::Import(options, directory, observer, std::move(stop), limits);
  });
  EXPECT_EQ(catalog->import_progress(), std::nullopt);
  ASSERT_TRUE(catalog->Import(Id("small"), Options()).ok());
  ASSERT_TRUE(AwaitEnd(*catalog, Id("small")).ok());
  EXPECT_EQ(at_first, 0);
  EXPECT_EQ(after_a_quarter, 0.25);
  EXPECT_EQ(catalog->import_progress(), std::nullopt);
}

TEST_F(ImportProgressTest, ThoseThatWaitAreAllButTheOneThatRuns) {
  absl::Notification began, may_end;
  const auto catalog = Open([&](const ImportOptions& options, const std::filesystem::path& directory,
                                const ImportObserver& observer, std::stop_token stop, const ImportLimits& limits) {
    if (!began.HasBeenNotified()) began.Notify();
    may_end.WaitForNotification();
    return data::Import(options, directory, observer, std::move(stop), limits);
  });
  EXPECT_EQ(catalog->usage().imports_waiting, 0);
  for (const char* id : {"one", "two", "three"}) ASSERT_TRUE(catalog->Import(Id(id), Options()).ok());
  began.WaitForNotification();
  EXPECT_EQ(catalog->usage().imports_waiting, 2);
  may_end.Notify();
  for (const char* id : {"one", "two", "three"}) ASSERT_TRUE(AwaitEnd(*catalog, Id(id)).ok());
  EXPECT_EQ(catalog->usage().imports_waiting, 0);
}

}  // namespace
}  // namespace permafrost::data
