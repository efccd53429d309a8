#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fields/result_field.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// A product x [m, k] W [k, n] whose weight is looked up in an array of `elements` numbers.
struct HashedQuestion {
  std::int64_t m = 0, n = 0, k = 0, elements = 0;
  std::vector<std::string> gpus;
  std::string models = "learned";
};

/// One pass of the product on one GPU, in microseconds, without launches. `inference` is y = x W;
/// `training` adds the gradients of x and of W.
struct HashedRow {
  std::string gpu, dtype, pass;
  double stored_us = 0;     ///< W stored as a matrix
  double roast_us = 0;      ///< tiles of 32 x 64 by one hash each
  double hashednet_us = 0;  ///< every number by its own hash, in one kernel
  /// W is gathered by kept indices of 8 bytes before the products; its gradient is scattered.
  double ops_us = 0;
  /// The same, with indices computed each time: ((a i + b) mod P) mod S by four ops on int64.
  double rehashed_us = 0;
  /// The most rows of x, among 1, 2, 4, ..., 65,536, up to which ROAST takes less than a stored
  /// weight; 0: it never does.
  std::int64_t rows_below_stored = 0;
  /// The fewest of these rows from which framework ops take less than HashedNet in one kernel; 0:
  /// they never do.
  std::int64_t rows_of_ops = 0;
};

struct HashedAnswer {
  HashedQuestion question;
  std::vector<HashedRow> rows;
  std::vector<std::string> warnings;
};

/// Prices are heuristic and out of range on every GPU (docs/kernel_models.md, Hashed weights). In
/// bf16 or fp16 where a GPU has matrix units for it, else in fp32. Fails on unknown names and on
/// arrays that do not hold more than one tile.
Result<HashedAnswer> answer_hashed(const HashedQuestion& question);

extern const ResultFields<HashedRow> kHashedFields;

OrderedJson hashed_json(const HashedAnswer& answer);

}  // namespace perfmodel
