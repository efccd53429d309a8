#include "row_sums.hpp"

#include "launch.hpp"

namespace kernels_bench::gpu {
inline namespace row_sums_cu {

constexpr std::int64_t kSampledLookups = 62;
constexpr unsigned kReferenceBlocks = 1024;

/// sums: [samples, dim]; counts: [samples].
__global__ void add_to_sampled_rows(const std::int64_t* indices, const float* gradient,
                                    kernels::EmbeddingShape shape, const std::int64_t* sample,
                                    int samples, double* sums, double* counts) {
  const std::int64_t stride = std::int64_t{blockDim.x} * gridDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < shape.lookups();
       i += stride) {
    const std::int64_t row = i / (shape.batch * shape.pooling) * shape.rows + indices[i];
    const std::int64_t bag = i / shape.pooling;
    for (int s = 0; s < samples; ++s) {
      if (sample[s] != row) continue;
      atomicAdd(counts + s, 1.0);
      for (std::int64_t d = 0; d < shape.dim; ++d) {
        atomicAdd(sums + s * shape.dim + d,
                  static_cast<double>(gradient[shape.output_offset(bag) + d]));
      }
    }
  }
}

template <class T>
__global__ void sum_bags(const T* weights, const std::int64_t* indices,
                         kernels::EmbeddingShape shape, const std::int64_t* bags,
                         std::int64_t samples, double* out) {
  const std::int64_t stride = std::int64_t{blockDim.x} * gridDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
       i < samples * shape.dim; i += stride) {
    const std::int64_t bag = bags[i / shape.dim], table = bag / shape.batch;
    double sum = 0;
    for (std::int64_t lookup = 0; lookup < shape.pooling; ++lookup) {
      const std::int64_t row = table * shape.rows + indices[bag * shape.pooling + lookup];
      sum += kernels::to_float(weights[row * shape.dim + i % shape.dim]);
    }
    out[i] = sum;
  }
}

template <class T>
Outcome<T*> upload_list(Context& context, const std::vector<T>& list) {
  const auto bytes = static_cast<std::int64_t>(list.size() * sizeof(T));
  auto memory = context.allocate(bytes);
  TRY_OUTCOME(memory);
  TRY_OUTCOME(context.upload(*memory, list.data(), bytes));
  return static_cast<T*>(*memory);
}

Outcome<void> download_list(Context& context, const double* from, reference::Row& to) {
  return context.download(to.data(), from, static_cast<std::int64_t>(to.size() * sizeof(double)));
}

Outcome<std::vector<std::int64_t>> choose_rows(Context& context, const std::int64_t* indices,
                                               const kernels::EmbeddingShape& shape) {
  std::vector<std::int64_t> rows = {0, shape.tables * shape.rows - 1};
  for (std::int64_t s = 0; s < kSampledLookups; ++s) {
    const std::int64_t lookup = (shape.lookups() - 1) * s / (kSampledLookups - 1);
    std::int64_t index = 0;
    TRY_OUTCOME(context.download(&index, indices + lookup, sizeof(index)));
    rows.push_back(lookup / (shape.batch * shape.pooling) * shape.rows + index);
  }
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

}  // namespace row_sums_cu

Outcome<RowSums> sum_sampled_rows(Context& context, const std::int64_t* indices,
                                  const float* gradient, const kernels::EmbeddingShape& shape) {
  auto rows = choose_rows(context, indices, shape);
  TRY_OUTCOME(rows);
  auto sample = upload_list(context, *rows);
  TRY_OUTCOME(sample);
  const auto dim = static_cast<std::size_t>(shape.dim);
  reference::Row sums(rows->size() * dim), counts(rows->size());
  auto device_sums = upload_list(context, sums);
  TRY_OUTCOME(device_sums);
  auto device_counts = upload_list(context, counts);
  TRY_OUTCOME(device_counts);
  add_to_sampled_rows<<<kReferenceBlocks, kThreads, 0, context.stream()>>>(
      indices, gradient, shape, *sample, static_cast<int>(rows->size()), *device_sums,
      *device_counts);
  GPU_TRY(GPU(GetLastError)());
  TRY_OUTCOME(download_list(context, *device_sums, sums));
  TRY_OUTCOME(download_list(context, *device_counts, counts));

  RowSums result;
  result.rows = std::move(*rows);
  for (std::size_t s = 0; s < result.rows.size(); ++s) {
    const auto begin = sums.begin() + static_cast<std::ptrdiff_t>(s * dim);
    result.sums.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(dim));
    result.lookups.push_back(static_cast<std::int64_t>(counts[s]));
  }
  return result;
}

Outcome<reference::Row> sum_sampled_bags(Context& context, const void* weights, DType dtype,
                                         const std::int64_t* indices,
                                         const kernels::EmbeddingShape& shape,
                                         const std::vector<std::int64_t>& bags) {
  auto sample = upload_list(context, bags);
  TRY_OUTCOME(sample);
  reference::Row sums(bags.size() * static_cast<std::size_t>(shape.dim));
  auto out = context.allocate(static_cast<std::int64_t>(sums.size() * sizeof(double)));
  TRY_OUTCOME(out);
  TRY_OUTCOME(with_type(dtype, [&](auto type) -> Outcome<void> {
    using T = decltype(type);
    sum_bags<T><<<kReferenceBlocks, kThreads, 0, context.stream()>>>(
        static_cast<const T*>(weights), indices, shape, *sample,
        static_cast<std::int64_t>(bags.size()), static_cast<double*>(*out));
    GPU_TRY(GPU(GetLastError)());
    return {};
  }));
  TRY_OUTCOME(download_list(context, static_cast<const double*>(*out), sums));
  return sums;
}

}  // namespace kernels_bench::gpu
