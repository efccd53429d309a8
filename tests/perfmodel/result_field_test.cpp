// Figures of results as JSON, CSV and text.
#include "fields/result_field.hpp"
#include "json/csv_file.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace perfmodel {
namespace result_field_test {

enum class Colour { kRed, kBlue };
std::string_view to_string(Colour colour) { return colour == Colour::kRed ? "red" : "blue"; }

struct Part {
  double time_us = 0;
};
struct Figures {
  std::string name;
  std::int64_t count = 0;
  double share = 0, held_bytes = 0;
  bool fits = false;
  std::optional<double> rate = {};
  Colour colour = Colour::kBlue;
  Part part = {};

  double double_share() const { return 2 * share; }
};

const ResultFields<Part> kPartFields = {{"time_us", &Part::time_us, "ms"}};
const ResultFields<Figures> kFields = joined_fields<Figures>(
    {{{"name", &Figures::name, "<name"},
      {"count", &Figures::count, "count"},
      {"share", &Figures::share},
      {"double_share", &Figures::double_share, Digits::kFourInTables, "twice",
       [](const Figures& of) { return of.name + " twice"; }},
      {"held_bytes", &Figures::held_bytes},
      {"fits", &Figures::fits},
      {"rate", &Figures::rate, "rate"},
      {"colour", &Figures::colour},
      {"parts", [](const Figures& of) { return json_list(std::vector{of.part}, kPartFields); }}},
     part_fields<Figures>(&Figures::part, kPartFields)});

const Figures kOne = {.name = "a, b",
                      .count = 12345,
                      .share = 0.123456789,
                      .held_bytes = 1e9 + 0.4,
                      .fits = true,
                      .part = {.time_us = 1234.56789}};

TEST(ResultField, JsonHasTheDigitsOfTheName) {
  EXPECT_EQ(json_object(kOne, kFields).dump(),
            R"({"name":"a, b","count":12345,"share":0.123457,"double_share":0.246913578,)"
            R"("held_bytes":1000000000,"fits":true,"rate":null,"colour":"blue",)"
            R"("parts":[{"time_us":1234.568}],"time_us":1234.568})");
}

TEST(ResultField, JsonMayHaveAllDigits) {
  const auto fields = named_fields(kFields, {"share", "time_us"});
  EXPECT_EQ(json_object(kOne, fields, true).dump(),
            R"({"share":0.123456789,"time_us":1234.56789})");
}

TEST(ResultField, CsvHasCellsInTheOrderOfTheNames) {
  const auto fields = named_fields(kFields, {"time_us", "name", "double_share", "held_bytes",
                                             "fits", "rate", "share", "colour", "count"});
  EXPECT_EQ(csv_header(fields),
            "time_us,name,double_share,held_bytes,fits,rate,share,colour,count");
  EXPECT_EQ(csv_cells(kOne, fields), "1234.568,\"a, b\",0.2469,1000000000,1,,0.123457,blue,12345");
}

TEST(ResultField, TextIsUsualOrTheFieldsOwn) {
  const auto text = [](std::string_view name) { return named_field(kFields, name).text(kOne); };
  EXPECT_EQ(text("name"), "a, b");
  EXPECT_EQ(text("count"), "12,345");
  EXPECT_EQ(text("share"), "0.123457");
  EXPECT_EQ(text("double_share"), "a, b twice");
  EXPECT_EQ(text("rate"), "");
  EXPECT_EQ(text("colour"), "blue");
  EXPECT_EQ(text("time_us"), "1.235");
}

TEST(ResultField, InfiniteNumbersAreNull) {
  const double infinite = std::numeric_limits<double>::infinity();
  for (const auto digits : {Digits::kSix, Digits::kThreeDecimals}) {
    EXPECT_TRUE(with_digits(infinite, digits).is_null());
    EXPECT_TRUE(with_digits(std::nan(""), digits).is_null());
  }
}

TEST(ResultField, CellsAreQuotedWhereTheyMust) {
  EXPECT_EQ(csv_cell("plain"), "plain");
  EXPECT_EQ(csv_cell("a \"b\""), "\"a \"\"b\"\"\"");
  EXPECT_EQ(csv_quoted("plain"), "\"plain\"");
}

TEST(EachName, NamesFieldsAndValuesOnce) {
  const ResultFields<Figures> fields = {PERFMODEL_FIELDS(Figures, name, count, fits)};
  EXPECT_EQ(json_object(kOne, fields).dump(), R"({"name":"a, b","count":12345,"fits":true})");
  const OrderedJson values = {PERFMODEL_VALUES(kOne, count, fits)};
  EXPECT_EQ(values.dump(), R"({"count":12345,"fits":true})");
}

TEST(EachName, CopiesAndReadsMembersInTheirOrder) {
  Figures copy;
  PERFMODEL_COPY(copy, kOne, name, count);
  EXPECT_EQ(copy.name, "a, b");
  EXPECT_EQ(copy.count, 12345);
  std::string read;
  const auto length = [&](const std::string& name) {
    read += name;
    return static_cast<double>(name.size());
  };
  PERFMODEL_READ(copy, length, held_bytes, share);
  EXPECT_EQ(read, "held_bytesshare");
  EXPECT_EQ(copy.share, 5);
}

}  // namespace result_field_test
}  // namespace perfmodel
