// Tables of layouts: rows that are priced (`layout eval --table`), and measured steps that
// calibrate a machine (`layout --measured`).
#include <algorithm>
#include <cmath>

#include "layout/layout_table.hpp"
#include "layout_pricers.hpp"

using namespace perfmodel;

namespace {

constexpr std::ptrdiff_t kMostRows = 12;  // each distinct one costs milliseconds

LayoutJob asked_job() {
  LayoutJob job{.sequence = 512, .global_batch = 16};
  job.model = {.name = "small",
               .layers = 4,
               .hidden = 256,
               .heads = 4,
               .feed_forward = 1024,
               .vocabulary = 1000};
  return job;
}

void check_measured(const std::filesystem::path& file, const LayoutJob* asked) {
  LayoutInputs inputs;
  inputs.machine = {.gpu = "a100-sxm-80gb", .topology = "dgx-a100"};
  inputs.measured = file.string();
  const auto measured = layout_pricer(fuzz::layout_predictor(), inputs.machine, inputs, asked,
                                      [](const std::string&) {});
  if (!measured) return fuzz::check_error(measured.error());
  const auto fit = measured->fit();
  PERFMODEL_CHECK(fit && fit->steps > 0);
  for (const double share : {fit->mape_before, fit->mape_after, fit->mape_left_out}) {
    PERFMODEL_CHECK(std::isfinite(share) && share >= 0);
  }
  for (const auto& [name, factor] : fit->factors) {
    fuzz::check_line(name);
    PERFMODEL_CHECK(std::isfinite(factor) && factor > 0);
  }
  if (asked) fuzz::check_layout(*measured, *asked, {.dp = 4, .tp = 2});
}

// A table comes out with the rows that went in, each with an answer or an error.
void check_priced(const std::filesystem::path& file) {
  LayoutInputs inputs;
  inputs.machine = {.gpu = "a100-sxm-80gb", .topology = "dgx-a100"};
  const auto text = price_layout_rows(fuzz::layout_predictor(), inputs, file.string(),
                                      {.warn = [](const std::string&) {},
                                       .is_stopped = [] { return false; },
                                       .progress = [](std::size_t, std::size_t) {}});
  if (!text) return fuzz::check_error(text.error());
  PERFMODEL_CHECK(text->find("error") != text->npos && text->ends_with('\n'));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  if (std::ranges::count(text, '\n') > kMostRows) return 0;
  static const LayoutJob asked = asked_job();
  const auto& file = fuzz::file_with(text, ".csv");
  check_measured(file, nullptr);
  check_measured(file, &asked);
  check_priced(file);
  return 0;
}
