#include "base/sort_runs.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "core/collective_names.hpp"

namespace perfmodel {
namespace sort_runs_test {

using ::testing::ElementsAre;

struct Item {
  int key = 0, place = 0;
  bool operator==(const Item&) const = default;
};

std::vector<Item> random_items(int count, int keys, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Item> items;
  for (int i = 0; i < count; ++i) {
    items.push_back(
        {.key = static_cast<int>(random() % static_cast<std::uint32_t>(keys)), .place = i});
  }
  return items;
}

bool earlier(const Item& a, const Item& b) { return a.key < b.key; }

TEST(SortRuns, MergesRunsAndKeepsEqualItemsInTheirOrder) {
  std::vector<Item> items = {{2, 0}, {5, 1}, {1, 2}, {5, 3}, {0, 4}};
  sort_runs(items, earlier);
  EXPECT_THAT(items, ElementsAre(Item{0, 4}, Item{1, 2}, Item{2, 0}, Item{5, 1}, Item{5, 3}));
}

TEST(SortRuns, SortsAsStableSort) {
  for (int count : {0, 1, 2, 3, 7, 64, 1000}) {
    std::vector<Item> expected = random_items(count, 10, 7);
    std::vector<Item> items = expected, large = expected, grouped = expected;
    std::ranges::stable_sort(expected, earlier);
    sort_runs(items, earlier);
    sort_large_runs(large, earlier, [](const Item&) { return 0; });
    sort_large_runs(grouped, earlier, [](const Item& item) { return item.key / 3; });
    EXPECT_EQ(items, expected) << count;
    EXPECT_EQ(large, expected) << count;
    EXPECT_EQ(grouped, expected) << count;
  }
}

TEST(SortRuns, ComparesOnceWhatIsInOrder) {
  std::vector<int> numbers(100);
  std::iota(numbers.begin(), numbers.end(), 0);
  int asked = 0;
  sort_runs(numbers, [&](int a, int b) { return ++asked, a < b; });
  EXPECT_EQ(asked, 99);
}

TEST(CollectiveNames, AnswersAsTheNameDoes) {
  StringPool names;
  const NameId reduce = names.intern("ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
               gemm = names.intern("ampere_sgemm_128x64_tn");
  CollectiveNames is_collective(names);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(is_collective(reduce));
    EXPECT_FALSE(is_collective(gemm));
  }
}

}  // namespace sort_runs_test
}  // namespace perfmodel
