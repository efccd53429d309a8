#include "kernels/gemm_answer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <set>
#include <utility>

#include "base/each_name.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/detail/choose_kernel_models.hpp"
#include "tables/kernel_table.hpp"

namespace perfmodel {
namespace {

using Tile = tiles::RankedTile;

GemmShape shape_of(const GemmQuestion& question) {
  GemmShape shape;
  shape.batch = question.batch;
  shape.m = question.m;
  shape.n = question.n;
  shape.k = question.k;
  return shape;
}

bool is_product_of(const KernelRow& row, tiles::TileSpace space) {
  const auto* shape = std::get_if<GemmShape>(&row.work.shape);
  if (row.work.family != KernelFamily::kGemm || !shape || shape->quantizes_a) return false;
  const DType dtype = row.work.dtype;
  return space == tiles::TileSpace::kMma ? dtype == DType::kFloat16 || dtype == DType::kBFloat16
                                         : dtype == DType::kFloat32 && !row.work.matrix_units;
}

// Takes the products of this GPU, in a type of the space, from the rows of a table.
Result<GemmCalibration> calibrate_gemm(const GemmQuestion& question, tiles::TileSpace space,
                                       const std::filesystem::path& data, const Gpu& gpu,
                                       std::vector<std::string>& warnings) {
  PERFMODEL_TRY(table, read_kernel_table(question.calibrate,
                                         {.gpu_folder = data / "gpus", .needs_time = true}));
  warnings.insert(warnings.end(), table->warnings.begin(), table->warnings.end());
  std::vector<tiles::MeasuredProduct> products;
  for (const KernelRow& row : table->rows) {
    const bool is_own = row.gpu < 0 || table->gpus[row.gpu].name == gpu.name;
    if (!is_own || !is_product_of(row, space)) continue;
    products.push_back({std::get<GemmShape>(row.work.shape), row.measured_us});
  }
  PERFMODEL_TRY(rows, tiles::calibration_rows(space, products, gpu));
  if (table->has_launch_cost) {
    warnings.emplace_back(
        "times of the table are taken as times of kernels alone: it does not say \"# timing: "
        "graph replay, no launch cost\"");
  }
  const auto range = tiles::kept_out_range(*rows);
  const GemmShape shape = shape_of(question);
  PERFMODEL_TRY(best, tiles::rank_tiles(tiles::tile_space(space), space, shape, true, gpu));
  const double library_us = tiles::TileCalibration::fit(*rows).library_us(shape, best->front());
  return GemmCalibration{.rows = rows->size(),
                         .left_out = table->rows.size() - rows->size(),
                         .library_us = library_us,
                         .low_us = library_us * range.low,
                         .high_us = library_us * range.high,
                         .errors = tiles::kept_out_errors(*rows)};
}

OrderedJson sides_json(const tiles::Sides& sides) { return {{"m", sides.m}, {"n", sides.n}}; }

OrderedJson block_json(const Tile& tile) {
  OrderedJson json = sides_json(tile.schedule.block);
  json["k"] = tile.schedule.block_k;
  return json;
}

template <class Value>
auto member_of(Value tiles::TileSchedule::*member) {
  return [member](const Tile& tile) { return tile.schedule.*member; };
}
template <class Value>
auto member_of(Value tiles::TileTime::*member) {
  return [member](const Tile& tile) { return tile.time.*member; };
}

std::string two_decimals(double value) { return fmt::format("{:.2f}", value); }
std::string plain_number(int value) { return std::to_string(value); }

OrderedJson library_json(const Price& price) {
  return {{"time_us", rounded(price.time.count())},
          {"low_us", rounded(price.low.count())},
          {"high_us", rounded(price.high.count())},
          {"model", price.model},
          {"in_range", price.in_range}};
}

OrderedJson calibration_json(const GemmCalibration& calibration) {
  return {{"rows", calibration.rows},
          {"rows_left_out", calibration.left_out},
          {"kept_out_error", six_digits(calibration.errors.calibrated)},
          {"constant_ratio_error", six_digits(calibration.errors.constant)},
          {"schedule_error", six_digits(calibration.errors.schedule)}};
}

}  // namespace

const ResultFields<Tile> kTileFields = {
    {"tile", block_json, "tile", [](const Tile& tile) { return tile.schedule.text(); }},
    {"warps", [](const Tile& tile) { return tile.schedule.warp_count(); }, "warps", plain_number},
    {"warp_tile", [](const Tile& tile) { return sides_json(tile.schedule.warp); }, "warp's",
     [](const Tile& tile) {
       return fmt::format("{}x{}", tile.schedule.warp.m, tile.schedule.warp.n);
     }},
    {"thread_tile",
     [](const Tile& tile) {
       return tile.schedule.matrix_units ? OrderedJson(nullptr) : sides_json(tile.schedule.thread);
     }},
    {"threads", member_of(&tiles::TileSchedule::threads)},
    {"stages", member_of(&tiles::TileSchedule::stages)},
    {"split_k", member_of(&tiles::TileTime::split_k), "split k", plain_number},
    {"time_us", member_of(&tiles::TileTime::time_us), "time us", two_decimals},
    {"registers", member_of(&tiles::TileSchedule::registers), "registers", plain_number},
    {"shared_bytes", member_of(&tiles::TileSchedule::shared_bytes), "shared B"},
    {"resident_blocks", member_of(&tiles::TileTime::resident), "blocks/SM", plain_number},
    {"bound", member_of(&tiles::TileTime::bound), "<bound"},
    {"waves", member_of(&tiles::TileTime::waves), "waves", two_decimals},
    {"load_us", member_of(&tiles::TileTime::load_us), Digits::kSix},
    {"compute_us", member_of(&tiles::TileTime::compute_us), Digits::kSix},
    {"prologue_us", member_of(&tiles::TileTime::prologue_us), Digits::kSix},
    {"epilogue_us", member_of(&tiles::TileTime::epilogue_us), Digits::kSix},
    {"fixed_us", member_of(&tiles::TileTime::fixed_us), Digits::kSix},
    {"reduce_us", member_of(&tiles::TileTime::reduce_us), Digits::kSix},
    {"dram_bytes", member_of(&tiles::TileTime::dram_bytes), Digits::kSix},
};

Result<GemmAnswer> answer_gemm(const GemmQuestion& question) {
  PERFMODEL_TRY(data, find_data_folder());
  PERFMODEL_TRY(gpu, find_gpu(question.gpu, *data / "gpus"));
  const auto space = tiles::tile_space_of(question.space);
  if (!space) {
    return fail(ErrorCode::kUnknownName,
                fmt::format("expected a space ({}), found \"{}\"",
                            fmt::join(tiles::kTileSpaceNames, ", "), question.space));
  }
  PERFMODEL_TRY(models, choose_kernel_models(question.models, *data));
  const bool matrix_units = *space == tiles::TileSpace::kMma;
  const tiles::TileSpaceList list = tiles::tile_space(*space);
  GemmAnswer answer{.question = question,
                    .gpu = std::move(*gpu),
                    .dtype = matrix_units ? "float16" : "float32",
                    .raw = list.raw,
                    .valid = list.valid.size()};
  answer.warnings = stand_ins(answer.gpu);
  if (!models->warning.empty()) answer.warnings.push_back(models->warning);
  const GemmShape shape = shape_of(question);
  PERFMODEL_TRY(ranked,
                tiles::rank_tiles(list, *space, shape, question.double_buffer == "on", answer.gpu));
  answer.ranked = std::move(*ranked);
  std::set<std::string> seen;
  std::erase_if(answer.ranked, [&](const Tile& tile) {
    return !seen.insert(json_object(tile, kTileFields).dump()).second;
  });
  answer.library = models->models.price(
      gemm_work(shape, matrix_units ? DType::kFloat16 : DType::kFloat32, matrix_units), answer.gpu);
  PERFMODEL_TRY_TO(models->check());
  if (!question.calibrate.empty()) {
    PERFMODEL_TRY(calibration,
                  calibrate_gemm(question, *space, *data, answer.gpu, answer.warnings));
    answer.calibration = *calibration;
  }
  if (!answer.library.in_range && !answer.calibration) {
    answer.warnings.emplace_back(
        "the library's kernel is outside the range that its model was fitted or checked on");
  }
  return answer;
}

OrderedJson gemm_json(const GemmAnswer& answer, bool all) {
  const GemmQuestion& question = answer.question;
  const Tile& best = answer.ranked.front();
  OrderedJson json = {{"gpu", answer.gpu.name},
                      PERFMODEL_VALUES(question, m, n, k, batch, space),
                      {"dtype", answer.dtype},
                      {"double_buffer", question.double_buffer == "on"},
                      {"raw_schedules", answer.raw},
                      {"valid_schedules", answer.valid},
                      {"best", json_object(best, kTileFields)},
                      {"library", library_json(answer.library)},
                      {"choice", best.time.time_us < answer.library_us() ? "schedule" : "library"}};
  if (answer.calibration) {
    json["library"]["calibrated_us"] = rounded(answer.calibration->library_us);
    json["library"]["calibrated_low_us"] = rounded(answer.calibration->low_us);
    json["library"]["calibrated_high_us"] = rounded(answer.calibration->high_us);
    json["calibration"] = calibration_json(*answer.calibration);
  }
  if (all) json["schedules"] = json_list(answer.ranked, kTileFields);
  json["warnings"] = answer.warnings;
  return json;
}

}  // namespace perfmodel
