#include "draw.hpp"
#include "family.hpp"

/// Table-batched embedding bags: B 128 ... 16384, T 1 ... 128, E 1e3 ... 2e7, L 1 ... 128,
/// D 16 ... 256, rows of fp32 and fp16; uniform and Zipf indices; forward, SGD, row-wise Adagrad.
namespace kernels_bench {
namespace {

constexpr std::uint64_t kNamedEvery = 8;

EmbeddingCase kinds(Draw& draw) {
  EmbeddingCase point;
  point.weights = draw.chance(0.7) ? DType::kFloat32 : DType::kFloat16;
  point.zipf_exponent = draw.pick({0.0, 0.0, 0.6, 0.9, 1.1, 1.3});
  const std::size_t pass = draw.below(4);
  if (pass >= 2) point.pass = Pass::kBackward;
  if (pass == 3) point.optimizer = EmbeddingCase::Optimizer::kRowWiseAdagrad;
  return point;
}

// Tables of the DLRMs of Lin et al. (HiPC 2022); the Criteo tables as one size.
void name_shape(EmbeddingCase& point, Draw& draw) {
  struct Named {
    std::int64_t tables, rows, pooling, dim;
  };
  const Named named = draw.pick<Named>(
      {{8, 1000000, 100, 64}, {26, 500000, 1, 128}, {8, 80000, 10, 128}, {1, 1000000, 1, 128}});
  point.tables = named.tables;
  point.rows = named.rows;
  point.pooling = named.pooling;
  point.dim = named.dim;
  point.batch = draw.pick({512, 1024, 2048, 4096});
}

void randomise(EmbeddingCase& point, Draw& draw) {
  point.batch = draw.log_uniform(128, 16384);
  point.tables = draw.log_uniform(1, 128);
  point.rows = draw.log_uniform(1e3, 2e7);
  point.pooling = draw.log_uniform(1, 128);
  point.dim = draw.chance(0.7) ? draw.pick({16, 32, 64, 128, 256}) : draw.log_uniform(4, 64) * 4;
}

std::optional<Case> draw_embedding(std::uint64_t seed, std::uint64_t index, const Limits& limits) {
  Draw draw(seed, "embedding", index);
  EmbeddingCase point = kinds(draw);
  return first_within(limits, [&] {
    index % kNamedEvery == 0 ? name_shape(point, draw) : randomise(point, draw);
    return point;
  });
}

constexpr std::string_view kColumns[] = {"op",      "dtype", "tables", "rows",     "batch",
                                         "pooling", "dim",   "zipf",   "optimizer"};

}  // namespace

const Family kEmbeddingFamily = {"embedding", "table-batched embedding bags and their updates",
                                 6000,        true,
                                 kColumns,    draw_embedding};

}  // namespace kernels_bench
