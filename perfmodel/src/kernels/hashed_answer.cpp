#include "kernels/hashed_answer.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/each_name.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/detail/choose_kernel_models.hpp"
#include "price/kernel_work.hpp"

namespace perfmodel {
namespace {

using Scheme = HashedProductShape::Scheme;

constexpr std::int64_t kTile = 32 * 64, kMostRows = 65'536;
constexpr double kIndexBytes = 8, kHashOps = 4;

/// Prices products on one GPU in one type.
struct HashedPricer {
  const KernelModels& models;
  const Gpu& gpu;
  HashedQuestion question;
  DType dtype;
  bool matrix_units, trains;

  double us(const KernelWork& work) const { return models.price(work, gpu).time.count(); }

  double hashed_us(Scheme scheme) const {
    const auto& [m, n, k, elements, gpus, names] = question;
    HashedProductShape shape{.scheme = scheme, .m = m, .n = n, .k = k, .elements = elements};
    const auto pass = [&] { return us(hashed_product_work(shape, dtype, matrix_units)); };
    double sum = pass();
    if (!trains) return sum;
    shape.is_weight_gradient = true;
    sum += pass();
    shape = {.scheme = scheme, .m = m, .n = k, .k = n, .elements = elements};
    return sum + pass();
  }

  double stored_us() const {
    const auto& [m, n, k, elements, gpus, names] = question;
    const auto product = [&](std::int64_t rows, std::int64_t columns, std::int64_t terms) {
      return us(gemm_work({.m = rows, .n = columns, .k = terms}, dtype, matrix_units));
    };
    const double forward = product(m, n, k);
    return trains ? forward + product(m, k, n) + product(k, n, m) : forward;
  }

  double ops_us() const {
    const std::int64_t weights = question.n * question.k;
    const double gather = us(gather_work(weights, 1, dtype, question.elements));
    const double scatter = us(scatter_add_work(weights, 1, dtype, question.elements));
    return stored_us() + gather + (trains ? scatter : 0);
  }

  double hash_us() const {
    const double bytes = kIndexBytes * static_cast<double>(question.n * question.k);
    KernelWork op{.family = KernelFamily::kElementwise, .dtype = DType::kInt64};
    op.bytes_read = op.bytes_written = {bytes};
    return kHashOps * us(op);
  }

  // Sets the two crossovers by a walk over the rows of x.
  void set_crossovers(HashedRow& row) {
    for (question.m = 1; question.m <= kMostRows; question.m *= 2) {
      if (row.rows_below_stored == question.m / 2 && hashed_us(Scheme::kTiles) < stored_us()) {
        row.rows_below_stored = question.m;
      }
      if (row.rows_of_ops == 0 && ops_us() < hashed_us(Scheme::kElements)) {
        row.rows_of_ops = question.m;
      }
    }
  }

  HashedRow row() {
    const double ops = ops_us();
    HashedRow row{.gpu = gpu.name,
                  .dtype = std::string(to_string(dtype)),
                  .pass = trains ? "training" : "inference",
                  .stored_us = stored_us(),
                  .roast_us = hashed_us(Scheme::kTiles),
                  .hashednet_us = hashed_us(Scheme::kElements),
                  .ops_us = ops,
                  .rehashed_us = ops + hash_us()};
    set_crossovers(row);
    return row;
  }
};

// The half type of the GPU's matrix units, else fp32 on vector units.
std::pair<DType, bool> arithmetic_of(const Gpu& gpu) {
  if (gpu.peak_tflop_per_s.bf16_matrix) return {DType::kBFloat16, true};
  if (gpu.peak_tflop_per_s.fp16_matrix) return {DType::kFloat16, true};
  return {DType::kFloat32, false};
}

template <class Time>
auto over_roast(Time time) {
  return [time](const HashedRow& row) { return row.*time / row.roast_us; };
}

std::string tenths(double value) { return fmt::format("{:.1f}", value); }
std::string rows_text(std::int64_t rows) { return rows > 0 ? grouped(rows) : "never"; }

}  // namespace

const ResultFields<HashedRow> kHashedFields = {
    {"gpu", &HashedRow::gpu, "<GPU"},
    {"dtype", &HashedRow::dtype, "<type"},
    {"pass", &HashedRow::pass, "<pass"},
    {"stored_us", &HashedRow::stored_us, "stored us", tenths},
    {"roast_us", &HashedRow::roast_us, "ROAST us", tenths},
    {"hashednet_us", &HashedRow::hashednet_us, "HashedNet us", tenths},
    {"hashednet_over_roast", over_roast(&HashedRow::hashednet_us), "HashedNet", tenths},
    {"ops_us", &HashedRow::ops_us, "as ops us", tenths},
    {"ops_over_roast", over_roast(&HashedRow::ops_us), "as ops", tenths},
    {"rehashed_us", &HashedRow::rehashed_us, "hashed anew us", tenths},
    {"rehashed_over_roast", over_roast(&HashedRow::rehashed_us), "hashed anew", tenths},
    {"rows_below_stored", &HashedRow::rows_below_stored, "ROAST first to", rows_text},
    {"rows_of_ops", &HashedRow::rows_of_ops, "ops first from", rows_text},
};

Result<HashedAnswer> answer_hashed(const HashedQuestion& question) {
  if (question.elements <= kTile) {
    return decline(
        fmt::format("--hash: expected an array of more than {} numbers (one tile), found {}", kTile,
                    question.elements));
  }
  PERFMODEL_TRY(data, find_data_folder());
  PERFMODEL_TRY(models, choose_kernel_models(question.models, *data));
  HashedAnswer answer{.question = question, .rows = {}, .warnings = {}};
  if (!models->warning.empty()) answer.warnings.push_back(models->warning);
  for (const std::string& name : question.gpus) {
    PERFMODEL_TRY(gpu, find_gpu(name, *data / "gpus"));
    const auto [dtype, matrix_units] = arithmetic_of(*gpu);
    for (const bool trains : {false, true}) {
      answer.rows.push_back(
          HashedPricer{models->models, *gpu, question, dtype, matrix_units, trains}.row());
    }
  }
  PERFMODEL_TRY_TO(models->check());
  answer.warnings.emplace_back(
      "no public code of ROAST or HashedNet was timed; our own kernels take 2 to 10 times as long "
      "(docs/kernel_models.md, Hashed weights)");
  return answer;
}

OrderedJson hashed_json(const HashedAnswer& answer) {
  const HashedQuestion& question = answer.question;
  return {PERFMODEL_VALUES(question, m, n, k),
          {"array_elements", question.elements},
          {"hashed", json_list(answer.rows, kHashedFields)},
          {"warnings", answer.warnings}};
}

}  // namespace perfmodel
