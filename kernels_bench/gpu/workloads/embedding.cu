#include "../../kernels/embedding.hpp"

#include <cmath>

#include "buffers.hpp"
#include "launch.hpp"
#include "row_sums.hpp"
#include "sort_pairs.hpp"

namespace kernels_bench::gpu {
inline namespace embedding_cu {

constexpr float kLearningRate = 0.01F;
constexpr kernels::RowWiseAdagrad kAdagrad = {kLearningRate, 1e-8F};

/// Weights, indices, and output or its gradient; what optimizers add comes after these.
class EmbeddingWorkload : public BufferedWorkload {
 public:
  explicit EmbeddingWorkload(const EmbeddingCase& point)
      : point_(point), shape_(point.tables, point.rows, point.batch, point.pooling, point.dim) {}

 protected:
  enum : int { kWeights, kIndices, kOutput };

  std::vector<Buffer> buffers() const override {
    Buffer weights = Buffer::uniform(point_.weights, shape_.tables * shape_.rows * shape_.dim);
    // Large tables are one for all sets: each set's indices touch other rows.
    weights.shared = weights.bytes() > 2 * device_limits().l2_bytes;
    if (weights.shared) {
      weights.touched =
          std::min(weights.bytes(), shape_.lookups() * shape_.dim * bytes_of(point_.weights));
    }
    const std::int64_t outputs = shape_.bags() * shape_.dim;
    return {weights, Buffer::indices(shape_.lookups(), shape_.rows, point_.zipf_exponent),
            point_.pass == Pass::kForward ? Buffer::output(DType::kFloat32, outputs)
                                          : Buffer::uniform(DType::kFloat32, outputs)};
  }

  const EmbeddingCase& point() const { return point_; }
  const kernels::EmbeddingShape& shape() const { return shape_; }
  bool half_rows() const { return point_.weights == DType::kFloat16; }

  const std::int64_t* indices(int copy) const { return data<std::int64_t>(copy, kIndices); }
  float* output(int copy) const { return data<float>(copy, kOutput); }

  /// Calls `use` with the type of a row's elements.
  template <class Use>
  static Outcome<void> with_rows(bool half, const Use& use) {
    return half ? use(kernels::Half{}) : use(float{});
  }

  Outcome<reference::Row> read_row(Context& context, std::int64_t row) const {
    return read_elements(context, data<void>(0, kWeights), point_.weights, row * shape_.dim,
                         shape_.dim);
  }

 private:
  EmbeddingCase point_;
  kernels::EmbeddingShape shape_;
};

class ForwardWorkload final : public EmbeddingWorkload {
 public:
  using EmbeddingWorkload::EmbeddingWorkload;

  Outcome<void> launch(int copy, Stream stream) override {
    return with_rows(half_rows(), [&](auto type) -> Outcome<void> {
      using T = decltype(type);
      return with_vector<T>(shape().dim % kernels::kWidest<T> == 0, [&](auto n) -> Outcome<void> {
        constexpr int kVector = decltype(n)::kValue;
        // The same number of rows in flight, from one bag or several.
        if (shape().pooling == 1) return launch_bags<T, kVector, 4, 1>(copy, stream);
        if (shape().pooling < 6) return launch_bags<T, kVector, 2, 4>(copy, stream);
        return launch_bags<T, kVector, 1, 8>(copy, stream);
      });
    });
  }

  Outcome<double> check(Context& context) override {
    TRY_OUTCOME(launch(0, context.stream()));
    const auto bags = sample_rows(shape().bags(), shape().dim);
    const auto sums = sum_sampled_bags(context, data<void>(0, kWeights), point().weights,
                                       indices(0), shape(), bags);
    TRY_OUTCOME(sums);
    HostRows out(context, output(0), DType::kFloat32, shape().bags(), shape().dim);
    ErrorMeter meter;
    for (std::size_t s = 0; s < bags.size(); ++s) {
      const auto begin = sums->begin() + static_cast<std::ptrdiff_t>(s) * shape().dim;
      const reference::Row expected(begin, begin + shape().dim);
      // Output row: sample and table of the bag.
      const std::int64_t table = bags[s] / shape().batch, sample = bags[s] % shape().batch;
      TRY_OUTCOME(meter.add(out.row(sample * shape().tables + table), expected));
    }
    return meter.result(tolerance(DType::kFloat32));
  }

 private:
  template <class T, int N, int kBags, int kAhead>
  Outcome<void> launch_bags(int copy, Stream stream) {
    static_assert(kBags <= kernels::kMaxBags);
    const int lanes = kernels::lanes_per_row(shape().dim / N);
    const kernels::EmbeddingForward<T, N, kBags, kAhead> body{
        data<T>(copy, kWeights), indices(copy), output(copy), shape(), lanes};
    return launch_groups(body, body.groups(), lanes, stream);
  }
};

class SgdWorkload final : public EmbeddingWorkload {
 public:
  using EmbeddingWorkload::EmbeddingWorkload;

  Outcome<void> launch(int copy, Stream stream) override {
    if (!half_rows()) return launch_updates<float, 1>(copy, stream);
    if (shape().dim % 2 == 0) return launch_updates<kernels::Half, 2>(copy, stream);
    return launch_updates<kernels::Half, 1>(copy, stream);
  }

  Outcome<double> check(Context& context) override {
    const auto updates = sum_sampled_rows(context, indices(0), output(0), shape());
    TRY_OUTCOME(updates);
    std::vector<reference::Row> expected;
    std::int64_t most = 1;
    for (std::size_t s = 0; s < updates->rows.size(); ++s) {
      auto row = read_row(context, updates->rows[s]);
      TRY_OUTCOME(row);
      for (std::size_t d = 0; d < row->size(); ++d)
        (*row)[d] -= kLearningRate * updates->sums[s][d];
      expected.push_back(std::move(*row));
      most = std::max(most, updates->lookups[s]);
    }
    TRY_OUTCOME(launch(0, context.stream()));
    ErrorMeter meter;
    for (std::size_t s = 0; s < expected.size(); ++s) {
      TRY_OUTCOME(meter.add(read_row(context, updates->rows[s]), expected[s]));
    }
    // Every atomic add rounds once.
    return meter.result(tolerance(point().weights) * std::sqrt(static_cast<double>(most)));
  }

 private:
  template <class T, int N>
  Outcome<void> launch_updates(int copy, Stream stream) {
    const int lanes = kernels::lanes_per_row(shape().dim / N);
    return launch_groups(
        kernels::EmbeddingBackwardSgd<T, N>{data<T>(copy, kWeights), indices(copy), output(copy),
                                            shape(), kLearningRate, lanes},
        shape().bags(), lanes, stream);
  }
};

/// Sorts the lookups by row, then sums and updates run by run; see AdagradRuns.
class AdagradWorkload final : public EmbeddingWorkload {
 public:
  explicit AdagradWorkload(const EmbeddingCase& point) : EmbeddingWorkload(point) {
    while (bits_ < 32 && (std::int64_t{1} << bits_) < all_rows()) ++bits_;
    if (supported()) {
      (void)sort_pairs(nullptr, sort_bytes_, sort_of(nullptr, nullptr, nullptr, nullptr), nullptr);
    }
  }

  Outcome<void> prepare(Context& context, int copies) override {
    if (!supported()) {
      return tl::unexpected(Failure{FailureKind::kUnsupported,
                                    "row-wise Adagrad: rows up to 2^32, lookups up to 2^31"});
    }
    return EmbeddingWorkload::prepare(context, copies);
  }

  Outcome<void> launch(int copy, Stream stream) override {
    TRY_OUTCOME(sort(copy, stream));
    GPU_TRY(GPU(MemsetAsync)(data<void>(copy, kPartial), 0,
                             static_cast<std::size_t>(partial_elements() * 4), stream));
    return with_rows(half_rows(), [&](auto type) -> Outcome<void> {
      using T = decltype(type);
      return with_vector<T>(shape().dim % kernels::kWidest<T> == 0, [&](auto n) -> Outcome<void> {
        return launch_runs<T, decltype(n)::kValue>(copy, stream);
      });
    });
  }

  Outcome<double> check(Context& context) override {
    const auto updates = sum_sampled_rows(context, indices(0), output(0), shape());
    TRY_OUTCOME(updates);
    std::vector<reference::Row> expected, expected_state;
    for (std::size_t s = 0; s < updates->rows.size(); ++s) {
      auto row = read_row(context, updates->rows[s]);
      TRY_OUTCOME(row);
      auto state = read_state(context, updates->rows[s]);
      TRY_OUTCOME(state);
      reference::adagrad(*row, state->front(), updates->sums[s], kAdagrad.learning_rate,
                         kAdagrad.epsilon);
      expected.push_back(std::move(*row));
      expected_state.push_back(std::move(*state));
    }
    TRY_OUTCOME(launch(0, context.stream()));
    ErrorMeter rows, states;
    for (std::size_t s = 0; s < expected.size(); ++s) {
      TRY_OUTCOME(rows.add(read_row(context, updates->rows[s]), expected[s]));
      TRY_OUTCOME(states.add(read_state(context, updates->rows[s]), expected_state[s]));
    }
    // A state holds squares of sums of many fp32 gradients.
    TRY_OUTCOME(states.result(10 * tolerance(DType::kFloat32)));
    return rows.result(tolerance(point().weights));
  }

 private:
  enum : int { kState = 3, kKeys, kBags, kSortedKeys, kSortedBags, kPartial, kSortWorkspace };

  std::int64_t all_rows() const { return shape().tables * shape().rows; }
  bool supported() const {
    return all_rows() <= (std::int64_t{1} << 32) && shape().lookups() < (std::int64_t{1} << 31);
  }
  std::int64_t partial_elements() const {
    return kernels::ceil_divide(shape().lookups(), kernels::kRunChunk) * shape().dim;
  }

  std::vector<Buffer> buffers() const override {
    std::vector<Buffer> list = EmbeddingWorkload::buffers();
    Buffer state = Buffer::uniform(DType::kFloat32, all_rows(), 0, 1);
    state.shared = list[kWeights].shared;
    if (state.shared) state.touched = std::min(state.bytes(), shape().lookups() * 4);
    list.push_back(state);
    for (int i = kKeys; i <= kSortedBags; ++i) {
      list.push_back(Buffer::workspace(shape().lookups() * 4));
    }
    list.push_back(Buffer::output(DType::kFloat32, partial_elements()));
    list.push_back(Buffer::workspace(static_cast<std::int64_t>(sort_bytes_)));
    return list;
  }

  SortPairs sort_of(const std::uint32_t* keys, std::uint32_t* sorted_keys,
                    const std::uint32_t* bags, std::uint32_t* sorted_bags) const {
    SortPairs sort;
    sort.keys_in = keys;
    sort.keys_out = sorted_keys;
    sort.values_in = bags;
    sort.values_out = sorted_bags;
    sort.count = shape().lookups();
    sort.bits = bits_;
    return sort;
  }

  Outcome<void> sort(int copy, Stream stream) {
    auto* keys = data<std::uint32_t>(copy, kKeys);
    auto* bags = data<std::uint32_t>(copy, kBags);
    TRY_OUTCOME(
        launch_items(kernels::EmbeddingKeys{indices(copy), keys, bags, shape(),
                                            kernels::Divider(shape().pooling, shape().lookups())},
                     stream));
    std::size_t bytes = sort_bytes_;
    GPU_TRY(sort_pairs(data<void>(copy, kSortWorkspace), bytes,
                       sort_of(keys, data<std::uint32_t>(copy, kSortedKeys), bags,
                               data<std::uint32_t>(copy, kSortedBags)),
                       stream));
    return {};
  }

  template <class T, int N>
  Outcome<void> launch_runs(int copy, Stream stream) {
    const std::int64_t vectors = shape().dim / N;
    const std::int64_t parts = kernels::ceil_divide(vectors, kernels::lanes_per_row(vectors));
    if (parts <= 1) return launch_parts<T, N, 1>(copy, stream);
    if (parts <= 2) return launch_parts<T, N, 2>(copy, stream);
    if (parts <= 4) return launch_parts<T, N, 4>(copy, stream);
    if (parts <= 8) return launch_parts<T, N, 8>(copy, stream);
    return tl::unexpected(
        Failure{FailureKind::kUnsupported, "row-wise Adagrad: rows of at most 256 loads"});
  }

  template <class T, int N, int kParts>
  Outcome<void> launch_parts(int copy, Stream stream) {
    kernels::AdagradRuns<T, N, kParts> body{};
    body.weights = data<T>(copy, kWeights);
    body.state = data<float>(copy, kState);
    body.partial = data<float>(copy, kPartial);
    body.gradient = output(copy);
    body.keys = data<std::uint32_t>(copy, kSortedKeys);
    body.bags = data<std::uint32_t>(copy, kSortedBags);
    body.shape = shape();
    body.optimizer = kAdagrad;
    body.lanes = kernels::lanes_per_row(shape().dim / N);
    TRY_OUTCOME(launch_groups(body, body.chunks(), body.lanes, stream));
    body.finish = true;
    return launch_groups(body, body.chunks(), body.lanes, stream);
  }

  Outcome<reference::Row> read_state(Context& context, std::int64_t row) const {
    return read_elements(context, data<void>(0, kState), DType::kFloat32, row, 1);
  }

  int bits_ = 1;
  std::size_t sort_bytes_ = 0;
};

}  // namespace embedding_cu

std::unique_ptr<Workload> make_embedding(const EmbeddingCase& point) {
  if (point.pass == Pass::kForward) return std::make_unique<ForwardWorkload>(point);
  if (point.optimizer == EmbeddingCase::Optimizer::kSgd) {
    return std::make_unique<SgdWorkload>(point);
  }
  return std::make_unique<AdagradWorkload>(point);
}

}  // namespace kernels_bench::gpu
