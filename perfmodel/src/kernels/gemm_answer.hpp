#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fields/result_field.hpp"
#include "perfmodel/predictors/kernel.hpp"
#include "perfmodel/result.hpp"
#include "price/tiles/tile_calibration.hpp"
#include "price/tiles/tile_time.hpp"

namespace perfmodel {

/// A matrix product whose tile schedules are to be ranked (docs/tiles.md).
struct GemmQuestion {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  std::string gpu, space = "simt1", double_buffer = "on", models = "learned";
  std::string calibrate;  ///< table of measured products; empty: none
};

/// The library's time as measured products of the GPU give it.
struct GemmCalibration {
  std::size_t rows = 0, left_out = 0;
  double library_us = 0, low_us = 0, high_us = 0;
  tiles::CalibrationErrors errors = {};
};

struct GemmAnswer {
  GemmQuestion question;
  Gpu gpu;
  std::string_view dtype;
  std::size_t raw = 0, valid = 0;              ///< schedules; those that can be built
  std::vector<tiles::RankedTile> ranked = {};  ///< without equal rows
  Price library = {};
  std::optional<GemmCalibration> calibration = {};
  std::vector<std::string> warnings = {};

  double library_us() const { return calibration ? calibration->library_us : library.time.count(); }
};

/// Fails on unknown names and if a reader, `rank_tiles` or `calibration_rows` fails.
Result<GemmAnswer> answer_gemm(const GemmQuestion& question);

/// A schedule as JSON and text have it.
extern const ResultFields<tiles::RankedTile> kTileFields;

/// The document without its head; `all`: every schedule, too.
OrderedJson gemm_json(const GemmAnswer& answer, bool all);

}  // namespace perfmodel
