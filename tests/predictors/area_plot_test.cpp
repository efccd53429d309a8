// Stacked staircases: heights, peaks within a pixel, the level to compare with, refusals.

#include "plot/area_plot.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

namespace perfmodel {
namespace area_plot_test {

using ::testing::HasSubstr;
using ::testing::Not;

struct Point {
  double x = 0, y = 0;
};

// One outline per layer, as drawn.
std::vector<std::vector<Point>> outlines(const AreaPlot& plot) {
  const auto panel = area_panel(plot);
  EXPECT_TRUE(panel) << panel.error().message;
  std::vector<std::vector<Point>> all;
  if (!panel) return all;
  const std::string begin = "<polygon points=\"";
  for (std::size_t at = 0; (at = panel->content.find(begin, at)) != std::string::npos;) {
    at += begin.size();
    std::istringstream words(panel->content.substr(at, panel->content.find('"', at) - at));
    std::vector<Point> points;
    Point point;
    for (char comma; words >> point.x >> comma >> point.y;) points.push_back(point);
    all.push_back(std::move(points));
  }
  return all;
}

double height(const std::vector<Point>& outline) {
  const auto [top, bottom] = std::ranges::minmax(outline, {}, &Point::y);
  return bottom.y - top.y;
}

AreaPlot two_layers() {
  return {.title = "bytes",
          .x_label = "time",
          .y_label = "MiB",
          .x = {0, 10, 30},
          .layers = {{.name = "weights", .amounts = {4, 4, 4}},
                     {.name = "others", .amounts = {0, 8, 2}}},
          .level = std::nullopt};
}

TEST(AreaPlots, LayersLieOnOneAnotherInProportion) {
  const auto drawn = outlines(two_layers());
  ASSERT_EQ(drawn.size(), 2U);
  EXPECT_EQ(drawn[0].size(), 4U);  // a level has no points but its ends
  const double unit = height(drawn[0]) / 4;
  EXPECT_GT(unit, 1);
  EXPECT_NEAR(height(drawn[1]), 8 * unit, 0.1);
  // An area that begins with nothing begins on the layer below; amounts hold until the next point.
  const double top_of_weights = std::ranges::min(drawn[0], {}, &Point::y).y;
  EXPECT_NEAR(drawn[1][0].y, top_of_weights, 0.01);
  EXPECT_NEAR(drawn[1][1].y, top_of_weights, 0.01);
  EXPECT_NEAR(drawn[1][1].x, drawn[1][2].x, 0.01);
  EXPECT_NEAR(drawn[1][2].y, top_of_weights - 8 * unit, 0.1);
  // A third of the time, then two.
  const double begin = drawn[0].front().x, end = std::ranges::max(drawn[0], {}, &Point::x).x;
  EXPECT_NEAR((drawn[1][2].x - begin) / (end - begin), 1. / 3, 0.01);
}

TEST(AreaPlots, HalvesOfAnAxisAreWritten) {
  AreaPlot plot = two_layers();
  plot.x = {0, 1, 2.5};
  const auto panel = area_panel(plot);
  ASSERT_TRUE(panel);
  EXPECT_THAT(panel->content, HasSubstr(">1.5<"));
}

TEST(AreaPlots, APeakWithinAPixelIsDrawn) {
  AreaPlot plot = two_layers();
  plot.x.clear();
  plot.layers = {{.name = "bytes", .amounts = {}}};
  for (int i = 0; i < 100'000; ++i) {
    plot.x.push_back(i);
    plot.layers[0].amounts.push_back(i == 54'321 ? 100 : i % 7 == 0 ? 2 : 1);
  }
  const auto drawn = outlines(plot);
  ASSERT_EQ(drawn.size(), 1U);
  EXPECT_LT(drawn[0].size(), 5000U);
  std::vector<double> heights;
  for (const Point& point : drawn[0]) heights.push_back(point.y);
  std::ranges::sort(heights);
  const double bottom = heights.back(), unit = (bottom - heights.front()) / 100;
  EXPECT_NEAR(bottom - heights[2], 2 * unit, 0.05);  // one peak, two corners
}

TEST(AreaPlots, ALevelFarAboveIsLeftOut) {
  AreaPlot plot = two_layers();
  plot.level = {.name = "device", .amount = 24};
  const auto near = area_panel(plot);
  ASSERT_TRUE(near);
  EXPECT_THAT(near->content, HasSubstr("device"));
  EXPECT_LT(height(outlines(plot)[0]), 0.6 * height(outlines(two_layers())[0]));
  plot.level->amount = 1000;
  const auto far = area_panel(plot);
  ASSERT_TRUE(far);
  EXPECT_THAT(far->content, Not(HasSubstr("device")));
}

TEST(AreaPlots, RefuseWhatCannotBeDrawn) {
  const auto refusal = [](auto&& change) {
    AreaPlot plot = two_layers();
    change(plot);
    const auto panel = area_panel(plot);
    return panel ? std::string("none") : panel.error().message;
  };
  EXPECT_THAT(refusal([](AreaPlot& plot) { plot.x.clear(); }), HasSubstr("found none"));
  EXPECT_THAT(refusal([](AreaPlot& plot) { plot.layers[1].amounts.pop_back(); }),
              HasSubstr("others: expected 3 amounts, found 2"));
  EXPECT_THAT(refusal([](AreaPlot& plot) { plot.layers[0].amounts[1] = -1; }),
              HasSubstr("weights: expected amounts not below 0, found -1"));
  EXPECT_THAT(refusal([](AreaPlot& plot) {
                plot.layers[0].amounts[1] = std::numeric_limits<double>::infinity();
              }),
              HasSubstr("found inf"));
  EXPECT_THAT(refusal([](AreaPlot& plot) { plot.layers.resize(11, plot.layers[0]); }),
              HasSubstr("expected at most 10 layers, found 11"));
}

}  // namespace area_plot_test
}  // namespace perfmodel
