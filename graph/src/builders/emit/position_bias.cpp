#include "position_bias.hpp"

#include <cmath>

#include "embedding_lookup.hpp"
#include "factory.hpp"
#include "memory.hpp"
#include "pointwise.hpp"
#include "views.hpp"

namespace perfmodel {
namespace {

constexpr double kMaxDistance = 128;

// All of this works on whole numbers [queries, keys] and has no gradient.
class Buckets {
 public:
  Buckets(AutogradTape& tape, std::int64_t queries, std::int64_t keys)
      : tape_(tape), graph_(tape.graph()), shape_{queries, keys} {}

  TensorRef of_distances(std::int64_t buckets, bool bidirectional) {
    TensorRef distance = distances();
    TensorRef bucket;
    if (bidirectional) {
      buckets /= 2;
      bucket = mul(tape_, cast(compare("aten::gt.Scalar", distance, 0), DType::kInt64),
                   static_cast<int>(buckets));
      bucket = add(tape_, bucket, 0);
      distance = unary(graph_, "aten::abs", distance, tape_.sequence());
    } else {
      const TensorRef zero = zeros_like(graph_, distance, DType::kInt64);
      const TensorRef least = binary(graph_, "aten::minimum", distance, zero, tape_.sequence());
      distance = neg(graph_, least, tape_.sequence());
    }
    const int exact = static_cast<int>(buckets / 2);
    const TensorRef near = compare("aten::lt.Scalar", distance, exact);
    const TensorRef chosen = where(tape_, near, distance, far(distance, exact, buckets));
    return bucket.exists() ? add(tape_, bucket, chosen) : add(tape_, chosen, 0);
  }

 private:
  TensorRef distances() {
    const auto line = [this](std::int64_t count, int dim) {
      const TensorRef all = arange(graph_, count);
      return dim == 1 ? unsqueeze(tape_, slice(tape_, all, 0, 0, kSliceEnd), 1)
                      : slice(tape_, unsqueeze(tape_, all, 0), 1, 0, kSliceEnd);
    };
    const TensorRef queries = line(shape_[0], 1), keys = line(shape_[1], 0);
    return sub(tape_, keys, queries);
  }

  TensorRef cast(TensorRef x, DType dtype) {
    return to_dtype_alone(graph_, x, dtype, tape_.sequence());
  }

  TensorRef compare(const char* op, TensorRef x, int number) {
    const TensorRef made = graph_.new_tensor(DType::kBool, graph_.shape(x));
    graph_.leaf_op(op, {x, number}, {made}, tape_.sequence());
    return made;
  }

  // Distances beyond the exact ones share buckets by their logarithm.
  TensorRef far(TensorRef distance, int exact, std::int64_t buckets) {
    TensorRef x = div(tape_, cast(distance, DType::kFloat32), exact);
    x = unary(graph_, "aten::log", x, tape_.sequence());
    x = div(tape_, x, std::log(kMaxDistance / exact));
    x = cast(mul(tape_, x, static_cast<int>(buckets) - exact), DType::kInt64);
    x = add(tape_, x, exact);
    graph_.begin_op("aten::full_like", {x, buckets - 1, kNone, kNone, kNone, kNone, kNone},
                    tape_.sequence());
    const TensorRef last = empty_like(graph_, x);
    fill(graph_, last, buckets - 1);
    graph_.end_op({last});
    return binary(graph_, "aten::minimum", x, last, tape_.sequence());
  }

  AutogradTape& tape_;
  GraphBuilder& graph_;
  Shape shape_;
};

}  // namespace

TensorRef relative_position_bias(AutogradTape& tape, TensorRef table, std::int64_t queries,
                                 std::int64_t keys, bool bidirectional) {
  const std::int64_t buckets = tape.graph().shape(table)[0];
  const TensorRef bucket = Buckets(tape, queries, keys).of_distances(buckets, bidirectional);
  const TensorRef values = embedding_lookup(tape, table, bucket);
  return unsqueeze(tape, permute(tape, values, {2, 0, 1}), 0);
}

}  // namespace perfmodel
