#include "perfmodel/predictors/detail/key_table.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>

namespace perfmodel {
namespace key_table_test {

TEST(KeyTable, AnswersAsAMap) {
  std::mt19937_64 random(7);
  for (const std::uint64_t keys : {1U, 10U, 1000U, 1U << 20}) {
    KeyTable<int> table;
    std::map<std::uint64_t, int> expected;
    for (int i = 0; i < 3000; ++i) {
      // Spread over the whole range, counted up, and apart in the upper half alone.
      const std::uint64_t number = random() % keys;
      const std::uint64_t key = i % 3 == 0   ? number * 0x9e3779b97f4a7c15U
                                : i % 3 == 1 ? number
                                             : number << 32;
      if (i % 5 == 0) table.reserve(static_cast<std::size_t>(i) / 2);
      table[key] += i;
      expected[key] += i;
      const int* missing = table.find(~key);
      ASSERT_EQ(missing ? *missing : -1, expected.contains(~key) ? expected[~key] : -1);
    }
    ASSERT_EQ(table.size(), expected.size());
    for (const auto& [key, value] : expected) ASSERT_EQ(*table.find(key), value);
    for (const auto& [key, value] : table) ASSERT_EQ(value, expected.at(key));
  }
}

TEST(KeyTable, KeepsTheOrderOfItsKeys) {
  KeyTable<char> table;
  EXPECT_EQ(table.find(3), nullptr);
  table[9] = 'a';
  table[3] = 'b';
  table[9] = 'c';
  ASSERT_EQ(table.size(), 2u);
  EXPECT_EQ(*table.begin(), std::pair(std::uint64_t{9}, 'c'));
  EXPECT_EQ(table.begin()[1], std::pair(std::uint64_t{3}, 'b'));
}

}  // namespace key_table_test
}  // namespace perfmodel
