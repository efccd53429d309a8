#include "plot/error_plots.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plot/svg_document.hpp"

namespace perfmodel {
namespace error_plots_test {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

/// Text outside ASCII counts by characters.
std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

struct Element {
  std::string name, text;  // the text between its tags, without entities resolved
  std::map<std::string, std::string> attributes;
  double number(const std::string& key) const { return std::stod(attributes.at(key)); }
};

/// Reads the XML that plots are made of: elements, attributes in double quotes, the five entities;
/// no comments, CDATA or processing instructions.
class XmlReader {
 public:
  explicit XmlReader(std::string_view text) : rest_(text) { read(); }
  /// The first part that is not well-formed; empty if all is.
  const std::string& fault() const { return fault_; }
  const std::vector<Element>& elements() const { return elements_; }

 private:
  bool take(std::string_view part) {
    if (!rest_.starts_with(part)) return false;
    rest_.remove_prefix(part.size());
    return true;
  }
  bool stop(std::string_view reason) {
    fault_ = std::string(reason) + " at: " + std::string(rest_.substr(0, 60));
    return false;
  }
  std::string name() {
    std::string word;
    while (!rest_.empty() &&
           (std::isalpha(static_cast<unsigned char>(rest_.front())) || rest_.front() == '-' ||
            std::isdigit(static_cast<unsigned char>(rest_.front())))) {
      word += rest_.front();
      rest_.remove_prefix(1);
    }
    return word;
  }
  /// Character data up to `end`.
  bool data(char end, std::string& text) {
    while (!rest_.empty() && rest_.front() != end) {
      const char c = rest_.front();
      if (c == '<' || c == '>') return stop("bare bracket");
      if (static_cast<unsigned char>(c) < 0x20 && c != '\n') return stop("control character");
      if (c == '&') {
        bool known = false;
        for (const char* entity : {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"}) {
          known = known || rest_.starts_with(entity);
        }
        if (!known) return stop("bare &");
      }
      text += c;
      rest_.remove_prefix(1);
    }
    return true;
  }
  bool tag() {
    if (take("</")) {
      const std::string closed = name();
      if (open_.empty() || elements_[open_.back()].name != closed || !take(">")) {
        return stop("unexpected end of " + closed);
      }
      open_.pop_back();
      return true;
    }
    if (!take("<")) return stop("no tag");
    Element element{.name = name()};
    if (element.name.empty()) return stop("no name");
    while (take(" ")) {
      const std::string key = name();
      std::string value;
      if (key.empty() || !take("=\"") || !data('"', value) || !take("\"")) {
        return stop("no attribute in quotes");
      }
      if (!element.attributes.emplace(key, value).second) return stop("attribute twice");
    }
    const bool empty = take("/");
    if (!take(">")) return stop("tag without end");
    if (open_.empty() && !elements_.empty()) return stop("second root");
    elements_.push_back(std::move(element));
    if (!empty) open_.push_back(elements_.size() - 1);
    return true;
  }
  void read() {
    while (!rest_.empty()) {
      std::string text;
      if (!data('<', text)) return;
      if (!open_.empty()) {
        elements_[open_.back()].text += text;
      } else if (text.find_first_not_of('\n') != std::string::npos) {
        stop("text outside the root");
        return;
      }
      if (!rest_.empty() && !tag()) return;
    }
    if (!open_.empty()) stop("not ended: " + elements_[open_.back()].name);
  }

  std::string_view rest_;
  std::string fault_;
  std::vector<Element> elements_;
  std::vector<std::size_t> open_;
};

std::string xml_fault(std::string_view text) { return XmlReader(text).fault(); }

/// Empty, or what is wrong with a panel: XML, numbers, labels that overlap or leave the panel.
std::string fault(const SvgPanel& panel) {
  const std::string text = "<svg>" + panel.content + "</svg>";
  const XmlReader reader(text);
  if (!reader.fault().empty()) return reader.fault();
  struct Box {
    double left, right, top, bottom;
    std::string text;
  };
  std::vector<Box> boxes;
  for (const Element& element : reader.elements()) {
    for (const auto& [key, value] : element.attributes) {
      const bool number =
          value.find("nan") == std::string::npos && value.find("inf") == std::string::npos;
      if (!number) return "no number: " + element.name + " " + key;
    }
    if (element.name == "circle" &&
        (element.number("cx") < 0 || element.number("cx") > panel.width ||
         element.number("cy") < 0 || element.number("cy") > panel.height)) {
      return "circle outside";
    }
    if (element.name != "text" || element.attributes.count("transform")) continue;
    const double x = element.number("x"), y = element.number("y");
    const double size = element.number("font-size");
    const double width = 0.58 * size * static_cast<double>(characters(element.text));
    double left = x;
    if (const auto anchor = element.attributes.find("text-anchor");
        anchor != element.attributes.end()) {
      left = anchor->second == "end" ? x - width : x - width / 2;
    }
    boxes.push_back({left, left + width, y - 0.75 * size, y + 0.2 * size, element.text});
  }
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    const Box& a = boxes[i];
    if (a.left < 0 || a.top < 0 || a.bottom > panel.height) return "outside: " + a.text;
    for (std::size_t j = 0; j < i; ++j) {
      const Box& b = boxes[j];
      if (a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom) {
        return "overlap: " + a.text + " and " + b.text;
      }
    }
  }
  return "";
}

ScatterPlot one_group(std::vector<double> measured, std::vector<double> predicted) {
  return {.title = "t",
          .groups = {{.name = "gemm", .measured_us = measured, .predicted_us = predicted}}};
}

TEST(XmlChecker, FindsFaults) {
  EXPECT_EQ(xml_fault("<a b=\"1\"><c/>x &amp; y</a>"), "");
  EXPECT_NE(xml_fault("<a><b></a></b>"), "");
  EXPECT_NE(xml_fault("<a>"), "");
  EXPECT_NE(xml_fault("<a>x & y</a>"), "");
  EXPECT_NE(xml_fault("<a b=1/>"), "");
  EXPECT_NE(xml_fault("<a b=\"1\" b=\"2\"/>"), "");
  EXPECT_NE(xml_fault("<a/><b/>"), "");
  EXPECT_NE(xml_fault("<a>\x01</a>"), "");
}

TEST(ScatterPanel, OneCirclePerRow) {
  const auto panel = scatter_panel(
      {.title = "H100",
       .groups = {
           {"gemm", {10, 100}, {11, 90}}, {"conv2d", {50}, {75}}, {"without rows", {}, {}}}});
  ASSERT_TRUE(panel.has_value());
  EXPECT_EQ(fault(*panel), "");
  EXPECT_EQ(count(panel->content, "<circle "), 3u);
  EXPECT_EQ(count(panel->content, "<polygon "), 2u);  // the bands
  EXPECT_THAT(panel->content, HasSubstr(">2 rows, MAPE 10.0 %<"));
  EXPECT_THAT(panel->content, HasSubstr(">1 row, MAPE 50.0 %<"));
  EXPECT_THAT(panel->content, HasSubstr(">10 µs<"));
  EXPECT_THAT(panel->content, HasSubstr(">100 µs<"));
  EXPECT_THAT(panel->content, Not(HasSubstr("without rows")));
}

TEST(ScatterPanel, PlacesPoints) {
  // One decade around 10 µs: 10^0.5 = 3.162 to 31.62 µs on 320 pixels from (left, bottom).
  const auto panel = scatter_panel(one_group({10}, {10}));
  ASSERT_TRUE(panel.has_value());
  EXPECT_EQ(fault(*panel), "");
  EXPECT_THAT(panel->content, HasSubstr("<circle cx=\"234\" cy=\"190\" "));  // 74 + 160, 350 - 160
}

TEST(ScatterPanel, UnitsFollowTheDecade) {
  const auto panel = scatter_panel(one_group({0.01, 1e7}, {0.01, 1e7}));
  ASSERT_TRUE(panel.has_value());
  EXPECT_EQ(fault(*panel), "");
  // Ten decades: every second one has room for its label.
  for (const char* label : {">10 ns<", ">1 µs<", ">100 µs<", ">10 ms<", ">1 s<"}) {
    EXPECT_EQ(count(panel->content, label), 2u) << label;
  }
}

TEST(ScatterPanel, DrawsAShareOfManyRows) {
  TimeGroup many{.name = "gemm"}, few{.name = "rare"};
  for (int i = 0; i < 9990; ++i) {
    many.measured_us.push_back(1 + i);
    many.predicted_us.push_back(2 + i);
  }
  few.measured_us.assign(10, 50);
  few.predicted_us.assign(10, 60);
  const ScatterPlot plot{.title = "t", .groups = {many, few}, .max_points = 1000};
  const auto panel = scatter_panel(plot);
  ASSERT_TRUE(panel.has_value());
  EXPECT_EQ(fault(*panel), "");
  EXPECT_EQ(count(panel->content, "<circle "), 1000u);  // 999 + 1
  EXPECT_THAT(panel->content, HasSubstr(">1,000 of 10,000 rows drawn<"));
  EXPECT_EQ(panel->content, scatter_panel(plot)->content);
}

TEST(ScatterPanel, BeyondTenGroupsTheSmallestAreGrey) {
  ScatterPlot plot{.title = "t"};
  for (int i = 0; i < 13; ++i) {
    const std::vector<double> times(static_cast<std::size_t>(20 - i), 10.0 + i);
    plot.groups.push_back({"op" + std::to_string(i), times, times});
  }
  const auto panel = scatter_panel(plot);
  ASSERT_TRUE(panel.has_value());
  EXPECT_EQ(fault(*panel), "");
  EXPECT_EQ(count(panel->content, "<ellipse "), 11u);
  EXPECT_THAT(panel->content, HasSubstr(">3 others<"));
  EXPECT_THAT(panel->content, HasSubstr(">op9<"));
  EXPECT_THAT(panel->content, Not(HasSubstr(">op10<")));
  EXPECT_EQ(count(panel->content, "<circle "), 182u);  // 20 + 19 + ... + 8
}

TEST(ScatterPanel, ExtremeValues) {
  for (const auto& [measured, predicted] : std::vector<std::pair<double, double>>{
           {1, 1}, {1e-9, 1e15}, {1e15, 1e-9}, {1e-9, 1e-9}, {1e15, 1e15}, {9.99, 10.01}}) {
    const auto panel = scatter_panel(one_group({measured}, {predicted}));
    ASSERT_TRUE(panel.has_value());
    EXPECT_EQ(fault(*panel), "") << measured << " " << predicted;
  }
  EXPECT_EQ(fault(*scatter_panel(one_group({5, 5, 5}, {5, 5, 5}))), "");
}

TEST(ScatterPanel, LabelsFitWhateverTheRange) {
  for (double decades = 0; decades < 12; decades += 0.3) {
    for (double low : {1e-4, 0.03, 1.0, 7.0, 450.0}) {
      const double high = low * std::pow(10, decades);
      const auto panel = scatter_panel(one_group({low, high}, {low, high}));
      ASSERT_TRUE(panel.has_value()) << low << " " << high;
      EXPECT_EQ(fault(*panel), "") << low << " " << high;
      // Labels to read the scale from, in addition to the two axis labels.
      EXPECT_GE(count(panel->content, "s</text>"), 2u) << low << " " << high;
    }
  }
}

TEST(ScatterPanel, Refuses) {
  EXPECT_FALSE(scatter_panel({}).has_value());
  EXPECT_FALSE(scatter_panel(one_group({}, {})).has_value());
  EXPECT_FALSE(scatter_panel(one_group({1, 2}, {1})).has_value());
  EXPECT_FALSE(scatter_panel(one_group({0}, {1})).has_value());
  EXPECT_FALSE(scatter_panel(one_group({1}, {-1})).has_value());
  EXPECT_FALSE(scatter_panel(one_group({1}, {kNan})).has_value());
  EXPECT_EQ(scatter_panel(one_group({1, 0}, {1, 2})).error().message,
            "gemm, row 1: expected times from 1e-09 to 1000000000000000 µs, found 0 and 2");
}

TEST(ErrorBySizePanel, BoxesAndSingleRows) {
  // Bin 10 to 20 µs: errors 0, 10, 20, 30, 40 %. Bin 20 to 50 µs: two rows.
  const auto panel = error_by_size_panel({.title = "t",
                                          .measured_us = {10, 10, 10, 10, 10, 20, 40},
                                          .predicted_us = {10, 11, 12, 13, 14, 20, 30}});
  ASSERT_TRUE(panel.has_value());
  EXPECT_EQ(fault(*panel), "");
  EXPECT_THAT(panel->content,
              HasSubstr("<title>10 µs to 20 µs: 5 rows, median +20.0 %, p10 +4.0 %, p25 +10.0 %, "
                        "p75 +30.0 %, p90 +36.0 %</title>"));
  EXPECT_EQ(count(panel->content, "<title>"), 1u);
  EXPECT_EQ(count(panel->content, "<circle "), 2u);
  EXPECT_THAT(panel->content, HasSubstr(">0 %<"));
  EXPECT_THAT(panel->content, HasSubstr(">single rows<"));
  EXPECT_THAT(panel->content, Not(HasSubstr("beyond the axis")));
}

TEST(ErrorBySizePanel, EdgesBelongToTheBinAbove) {
  for (const auto& [time, label] :
       std::vector<std::pair<double, std::string>>{{1, "1 µs to 2 µs"},
                                                   {1.999, "1 µs to 2 µs"},
                                                   {2, "2 µs to 5 µs"},
                                                   {5, "5 µs to 10 µs"},
                                                   {1000, "1 ms to 2 ms"},
                                                   {0.5, "500 ns to 1 µs"},
                                                   {0.02, "20 ns to 50 ns"}}) {
    const std::vector<double> times(5, time);
    const auto panel =
        error_by_size_panel({.title = "t", .measured_us = times, .predicted_us = times});
    ASSERT_TRUE(panel.has_value());
    EXPECT_EQ(fault(*panel), "") << time;
    EXPECT_THAT(panel->content, HasSubstr("<title>" + label + ": 5 rows, median 0 %")) << time;
  }
}

TEST(ErrorBySizePanel, CutsOffAt300Percent) {
  const auto panel = error_by_size_panel(
      {.title = "t", .measured_us = {1, 1, 1, 1, 1, 10}, .predicted_us = {9, 9, 9, 9, 9, 100}});
  ASSERT_TRUE(panel.has_value());
  EXPECT_EQ(fault(*panel), "");
  EXPECT_THAT(panel->content, HasSubstr(">+300 %<"));
  EXPECT_THAT(panel->content, Not(HasSubstr(">+400 %<")));
  EXPECT_THAT(panel->content, HasSubstr("median +800 %"));
  EXPECT_THAT(panel->content, HasSubstr(">beyond the axis<"));
  EXPECT_EQ(count(panel->content, "<polygon "), 3u);  // two bins and the legend
}

TEST(ErrorBySizePanel, ExtremeValues) {
  for (const auto& [measured, predicted] : std::vector<std::pair<double, double>>{
           {1, 1}, {1e-9, 1e15}, {1e15, 1e-9}, {1e-9, 1e-9}, {1e15, 1e15}}) {
    const auto panel =
        error_by_size_panel({.title = "t", .measured_us = {measured}, .predicted_us = {predicted}});
    ASSERT_TRUE(panel.has_value());
    EXPECT_EQ(fault(*panel), "") << measured << " " << predicted;
  }
  ErrorBySizePlot wide{.title = "t"};
  for (double time = 1e-9; time < 1e15; time *= 1.5) {
    wide.measured_us.push_back(time);
    wide.predicted_us.push_back(time * 1.1);
  }
  EXPECT_EQ(fault(*error_by_size_panel(wide)), "");
}

TEST(ErrorBySizePanel, Refuses) {
  EXPECT_FALSE(error_by_size_panel({}).has_value());
  EXPECT_FALSE(error_by_size_panel({.measured_us = {1}, .predicted_us = {}}).has_value());
  EXPECT_FALSE(error_by_size_panel({.measured_us = {0}, .predicted_us = {1}}).has_value());
  EXPECT_FALSE(error_by_size_panel({.measured_us = {1}, .predicted_us = {0}}).has_value());
  EXPECT_FALSE(error_by_size_panel({.measured_us = {-1}, .predicted_us = {1}}).has_value());
}

TEST(FewShotPanel, LinesBandsAndLevels) {
  const auto panel =
      few_shot_panel({.title = "t",
                      .series = {{"random", {{100, 0.1, 0.08, 0.12}, {10, 0.3, 0.2, 0.4}}},
                                 {"k-means", {{10, 0.2, 0.2, 0.2}}},
                                 {"no points", {}}},
                      .levels = {{"zero-shot", 0.35}}});
  ASSERT_TRUE(panel.has_value());
  EXPECT_EQ(fault(*panel), "");
  EXPECT_EQ(count(panel->content, "<circle "), 3u);
  EXPECT_EQ(count(panel->content, "<polygon "), 1u);
  EXPECT_EQ(count(panel->content, "<polyline "), 1u);
  EXPECT_THAT(panel->content, HasSubstr(">zero-shot<"));
  EXPECT_THAT(panel->content, HasSubstr(">35.0 %<"));
  EXPECT_THAT(panel->content, HasSubstr(">mean absolute error<"));
  EXPECT_THAT(panel->content, Not(HasSubstr("no points")));
  // x from 10^0.97 to 10^2.03 on 430 pixels from 74; y from 0 to 40 % on 320 pixels up from 350.
  // 0.03 / 1.06 * 430 = 12.17; 30 % is 240 up, 10 % is 80.
  EXPECT_THAT(panel->content, HasSubstr("points=\"86.17,110 491.83,270\""));
}

TEST(FewShotPanel, ExtremeValues) {
  for (double error : {0.0, 1e-12, 0.05, 1.0, 7.0, 1e6}) {
    for (double points : {1e-3, 1.0, 3.0, 1e12}) {
      const auto panel =
          few_shot_panel({.title = "t", .series = {{"s", {{points, error, error, error}}}}});
      ASSERT_TRUE(panel.has_value());
      EXPECT_EQ(fault(*panel), "") << error << " " << points;
    }
  }
}

TEST(FewShotPanel, Refuses) {
  const auto with = [](std::vector<FewShotPoint> points) {
    return few_shot_panel({.title = "t", .series = {{"s", std::move(points)}}}).has_value();
  };
  EXPECT_TRUE(with({{1, 0.1, 0.1, 0.1}}));
  EXPECT_FALSE(with({}));
  EXPECT_FALSE(with({{0, 0.1, 0.1, 0.1}}));
  EXPECT_FALSE(with({{1, 0.1, 0.2, 0.3}}));
  EXPECT_FALSE(with({{1, 0.1, 0, 0.05}}));
  EXPECT_FALSE(with({{1, kNan, 0, 1}}));
  EXPECT_FALSE(with({{1, 0.1, -0.1, 1}}));
  EXPECT_FALSE(with({{1, 0.1, 0.1, 0.1}, {1, 0.2, 0.2, 0.2}}));
  FewShotPlot many{.title = "t"};
  many.series.resize(21, {"s", {{1, 0.1, 0.1, 0.1}}});
  EXPECT_FALSE(few_shot_panel(many).has_value());
  many.series.pop_back();
  EXPECT_TRUE(few_shot_panel(many).has_value());
  many.levels = {{"level", kNan}};
  many.series.pop_back();
  EXPECT_FALSE(few_shot_panel(many).has_value());
}

TEST(SvgDocument, LaysPanelsOutInAGrid) {
  const SvgPanel wide{.width = 300, .height = 100, .content = "<g/>\n"};
  const SvgPanel high{.width = 200, .height = 150, .content = "<g/>\n"};
  const auto document = svg_document("", "", {wide, high, high}, 2);
  ASSERT_TRUE(document.has_value());
  EXPECT_EQ(xml_fault(*document), "");
  // 24 + 300 + 36 + 200 + 24 wide, 24 + 150 + 24 + 150 + 24 high.
  EXPECT_THAT(*document, HasSubstr("viewBox=\"0 0 584 372\""));
  EXPECT_THAT(*document, HasSubstr("translate(24 24)"));
  EXPECT_THAT(*document, HasSubstr("translate(360 24)"));
  EXPECT_THAT(*document, HasSubstr("translate(24 198)"));
  EXPECT_FALSE(svg_document("t", "", {}, 2).has_value());
  EXPECT_FALSE(svg_document("t", "", {wide}, 0).has_value());
}

TEST(SvgDocument, EscapesText) {
  ScatterPlot plot = one_group({1}, {1});
  plot.title = "a < b & \"c\" 'd' > e";
  plot.groups[0].name = "bad \x01 \xff \xed\xa0\x80 µs";  // control, no UTF-8, a surrogate
  const auto panel = scatter_panel(plot);
  ASSERT_TRUE(panel.has_value());
  EXPECT_EQ(fault(*panel), "");
  EXPECT_THAT(panel->content, HasSubstr("a &lt; b &amp; &quot;c&quot; &#39;d&#39; &gt; e"));
  EXPECT_THAT(panel->content, HasSubstr(">bad � � ��� µs<"));
  const auto document = svg_document("<title> & more", "x < y", {*panel}, 1);
  ASSERT_TRUE(document.has_value());
  EXPECT_EQ(xml_fault(*document), "");
  EXPECT_THAT(*document, HasSubstr("<title>&lt;title&gt; &amp; more</title>"));
  EXPECT_THAT(*document, Not(HasSubstr("<script")));
}

TEST(SvgDocument, LongNamesAreCutBetweenCharacters) {
  ScatterPlot plot = one_group({1}, {1});
  plot.title = std::string(500, 'x');
  std::string name;
  for (int i = 0; i < 100; ++i) name += "µ";
  plot.groups[0].name = name;
  const auto panel = scatter_panel(plot);
  ASSERT_TRUE(panel.has_value());
  EXPECT_EQ(fault(*panel), "");
  EXPECT_THAT(panel->content, HasSubstr("µµµ…<"));
  EXPECT_THAT(panel->content, Not(HasSubstr("�")));
  EXPECT_LT(panel->width, 700);
}

}  // namespace error_plots_test
}  // namespace perfmodel
