#include "serve/serve_question.hpp"

#include <gtest/gtest.h>

#include <variant>

namespace perfmodel::serve {
namespace serve_question_test {

TEST(ServeQuestion, RefusesAFolderThatIsNotThere) {
  ServeQuestion question;
  question.allow_files = "/no/such/folder";
  bool is_used = false;
  const auto done = with_server(question, [&](Server&) {
    is_used = true;
    return Result<void>();
  });
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().file, "/no/such/folder");
  EXPECT_FALSE(is_used);
}

TEST(ServeQuestion, DefaultsAreWithinTheRangesOfTheirFields) {
  const ServeQuestion question;
  for (const ServeField& field : serve_fields()) {
    if (const auto* member = std::get_if<std::size_t ServeQuestion::*>(&field.member)) {
      EXPECT_TRUE(field.range.holds(static_cast<double>(question.**member))) << field.name;
    }
  }
}

}  // namespace serve_question_test
}  // namespace perfmodel::serve
