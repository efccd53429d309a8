#include <cmath>

#include "families.hpp"
#include "price/kernel_work.hpp"

/// Ops on weights [rows, columns] that are not stored: tile by tile, or number by number, they lie
/// anywhere in an array of S elements, where a hash of the tile's place says (ROAST, HashedNet;
/// tables: ROBE).
///
///   hashed::mm(x, array, rows, columns, turned, tile_rows, tile_columns): x W, or x W^T if turned
///   hashed::addmm(bias, x, array, ...): the same and a bias
///   hashed::weight_gradient(left, right, elements, rows, columns, tile_rows, tile_columns): left
///     right [rows, columns or turned], added to an array that was cleared, by atomics
///   hashed::embedding(array, indices, rows, columns, run), hashed::embedding_bag(array, indices,
///     offsets, ...): rows of a table whose runs of `run` columns lie in one piece
///   hashed::embedding_gradient(gradient, indices, elements, columns, run)
///
/// As the public code of ROBE does it, a lookup of tables writes the place of every element, 8
/// bytes, which the gradient sorts: sort, unique, sums of equal places, then a scatter.
namespace perfmodel::ops {
namespace {

constexpr double kSectorBytes = 32, kPlaceBytes = 8, kFlopPerHash = 20;

struct HashedMatrix {
  std::int64_t rows = 0, columns = 0, tile_rows = 0, tile_columns = 0, elements = 0;
  bool is_sound() const {
    return rows > 0 && columns > 0 && tile_rows > 0 && tile_columns > 0 && elements > 0;
  }
};

HashedProductShape product_shape(const HashedMatrix& weight, std::int64_t m, bool turned) {
  using Scheme = HashedProductShape::Scheme;
  const bool by_elements = weight.tile_rows * weight.tile_columns == 1;
  return {.scheme = by_elements ? Scheme::kElements : Scheme::kTiles,
          .m = m,
          .n = turned ? weight.rows : weight.columns,
          .k = turned ? weight.columns : weight.rows,
          .elements = weight.elements,
          .tile_k = turned ? weight.tile_columns : weight.tile_rows,
          .tile_n = turned ? weight.tile_rows : weight.tile_columns};
}

bool lower_hashed_product(const OpView& op, const Gpu& gpu, std::vector<KernelWork>& kernels) {
  const std::size_t first = op.name() == "hashed::addmm" ? 1 : 0;
  const Tensor* x = op.tensor_input(first);
  const Tensor* array = op.tensor_input(first + 1);
  if (!x || !array || x->rank != 2) return false;
  const HashedMatrix weight{.rows = int_input(op, first + 2, 0),
                            .columns = int_input(op, first + 3, 0),
                            .tile_rows = int_input(op, first + 5, 0),
                            .tile_columns = int_input(op, first + 6, 0),
                            .elements = array->numel};
  const bool turned = bool_input(op, first + 4, false);
  if (!weight.is_sound() || dim(op, *x, 1) != (turned ? weight.columns : weight.rows)) return false;
  if (x->numel == 0) return true;
  KernelWork work = hashed_product_work(product_shape(weight, dim(op, *x, 0), turned), x->dtype,
                                        gemm_uses_matrix_units(x->dtype, gpu));
  if (first == 1) work.bytes_read += {bytes(op.tensor_input(0))};
  kernels.push_back(work);
  return true;
}

bool lower_weight_gradient(const OpView& op, const Gpu& gpu, std::vector<KernelWork>& kernels) {
  const Tensor* left = op.tensor_input(0);
  const Tensor* right = op.tensor_input(1);
  if (!left || !right || left->rank != 2 || right->rank != 2) return false;
  const HashedMatrix weight{.rows = int_input(op, 3, 0),
                            .columns = int_input(op, 4, 0),
                            .tile_rows = int_input(op, 5, 0),
                            .tile_columns = int_input(op, 6, 0),
                            .elements = int_input(op, 2, 0)};
  const bool turned = dim(op, *left, 0) != weight.rows;
  const std::int64_t m = dim(op, *left, 1);
  if (!weight.is_sound() || m != dim(op, *right, 0)) return false;
  if (m == 0) return true;
  HashedProductShape shape = product_shape(weight, m, turned);
  shape.is_weight_gradient = true;
  kernels.push_back(make_work(KernelFamily::kSet, left->dtype, 0,
                              static_cast<double>(weight.elements) * left->item_size));
  kernels.push_back(
      hashed_product_work(shape, left->dtype, gemm_uses_matrix_units(left->dtype, gpu)));
  return true;
}

/// Lookups of runs, in units of sectors: `sectors` read for each 32 bytes of a bag's result. A run
/// of c bytes at any element of s bytes touches (c + 32 - s) / 32 sectors.
EmbeddingShape sector_lookups(double bags, double ids, double columns, double run, double elements,
                              int item) {
  const double per_sector = kSectorBytes / item;
  const double sectors_of_row =
      std::ceil(columns / run) * (run * item + kSectorBytes - item) / kSectorBytes;
  const double groups = std::max(1.0, std::round(bags * columns / per_sector));
  EmbeddingShape shape;
  shape.batch = static_cast<std::int64_t>(groups);
  shape.num_rows = std::max(1.0, elements / per_sector);
  shape.dim = per_sector;
  shape.pooling_factor = ids * sectors_of_row / groups;
  shape.weight_bytes = shape.output_bytes = item;
  return shape;
}

bool lower_hashed_lookup(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const bool is_bag = op.name() == "hashed::embedding_bag";
  const Tensor* array = op.tensor_input(0);
  const Tensor* indices = op.tensor_input(1);
  const Tensor* result = op.tensor_output(0);
  const std::size_t first = is_bag ? 3 : 2;
  const double columns = static_cast<double>(int_input(op, first + 1, 0));
  const double run = static_cast<double>(int_input(op, first + 2, 0));
  if (!array || !indices || !result || columns <= 0 || run <= 0 || array->numel <= 0) return false;
  const double ids = static_cast<double>(indices->numel);
  if (ids == 0 || result->numel == 0) return true;
  const double places = ids * columns;
  kernels.push_back(make_work(KernelFamily::kElementwise, DType::kInt64, bytes(*indices),
                              places * kPlaceBytes, places * kFlopPerHash));
  const double bags = static_cast<double>(result->numel) / columns;
  const EmbeddingShape shape =
      sector_lookups(bags, ids, columns, run, static_cast<double>(array->numel), array->item_size);
  KernelWork work = make_work(
      KernelFamily::kEmbeddingForward, array->dtype,
      places * kPlaceBytes + static_cast<double>(shape.batch) * shape.pooling_factor * kSectorBytes,
      bytes(*result), places);
  work.shape = shape;
  kernels.push_back(work);
  return true;
}

bool lower_hashed_lookup_gradient(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Tensor* gradient = op.tensor_input(0);
  const Tensor* indices = op.tensor_input(1);
  const double elements = static_cast<double>(int_input(op, 2, 0));
  const double columns = static_cast<double>(int_input(op, 3, 0));
  if (!gradient || !indices || elements <= 0 || columns <= 0) return false;
  const double places = static_cast<double>(indices->numel) * columns;
  const double item = gradient->item_size;
  kernels.push_back(make_work(KernelFamily::kSet, gradient->dtype, 0, elements * item));
  if (places == 0) return true;
  const double keys = places * kPlaceBytes;
  kernels.push_back(make_work(KernelFamily::kElementwise, DType::kInt64, keys, keys));  // copy
  append_radix_sort(kernels, static_cast<std::int64_t>(places), 8, 8, bits_for(elements));
  kernels.push_back(make_work(KernelFamily::kIndex, DType::kInt64, keys, keys));  // unique
  const double touched = std::min(places, elements);
  kernels.push_back(make_work(KernelFamily::kIndex, gradient->dtype, keys + places * item,
                              touched * item, places));  // sums of equal places
  kernels.push_back(make_work(KernelFamily::kIndex, gradient->dtype, touched * (kPlaceBytes + item),
                              touched * item));
  return true;
}

}  // namespace

std::span<const NamedLower> hashed_weight_rules() {
  static constexpr NamedLower kRules[] = {
      {"hashed.product", lower_hashed_product},
      {"hashed.weight_gradient", lower_weight_gradient},
      {"hashed.lookup", lower_hashed_lookup},
      {"hashed.lookup_gradient", lower_hashed_lookup_gradient},
  };
  return kRules;
}

}  // namespace perfmodel::ops
