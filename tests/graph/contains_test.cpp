// Lists that keep each value once.
#include "base/contains.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace perfmodel {
namespace contains_test {

TEST(Contains, AddsOnceWhatIsNotThere) {
  std::vector<std::string> list = {"a"};
  EXPECT_TRUE(contains(list, "a"));
  add_once(list, std::string("b"));
  add_once(list, "a");
  EXPECT_EQ(list, (std::vector<std::string>{"a", "b"}));
  add_each_once(list, std::vector<std::string>{"c", "b", "c"});
  EXPECT_EQ(list, (std::vector<std::string>{"a", "b", "c"}));
}

}  // namespace contains_test
}  // namespace perfmodel
