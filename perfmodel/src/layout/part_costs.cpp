#include "part_costs.hpp"

namespace perfmodel {
namespace {

constexpr CollectiveSum CollectiveSums::*kKindsOfCollectives[] = {
    &CollectiveSums::all_reduce, &CollectiveSums::all_gather, &CollectiveSums::reduce_scatter};

}  // namespace

DType weights_of(LayoutJob::Precision precision) {
  switch (precision) {
    case LayoutJob::Precision::kFp32:
      return DType::kFloat32;
    case LayoutJob::Precision::kFp16:
      return DType::kFloat16;
    case LayoutJob::Precision::kBf16:
    case LayoutJob::Precision::kFp8:
    case LayoutJob::Precision::kFp4:
      return DType::kBFloat16;
  }
  return DType::kBFloat16;
}

double activation_width(const ShardQuestion& question) {
  return static_cast<double>(size_in_bytes(weights_of(question.precision)));
}

CollectiveSums& CollectiveSums::operator+=(const CollectiveSums& other) {
  for (const auto kind : kKindsOfCollectives) {
    (this->*kind).count += (other.*kind).count;
    (this->*kind).bytes += (other.*kind).bytes;
    (this->*kind).us += (other.*kind).us;
  }
  return *this;
}

CollectiveSums& CollectiveSums::operator*=(double times) {
  for (const auto kind : kKindsOfCollectives) {
    (this->*kind).count *= times;
    (this->*kind).bytes *= times;
    (this->*kind).us *= times;
  }
  return *this;
}

PassCosts operator+(PassCosts a, const PassCosts& b) {
  a.kernel_us += b.kernel_us;
  a.attention_us += b.attention_us;
  a.product_us += b.product_us;
  a.state_us += b.state_us;
  a.low_us += b.low_us;
  a.high_us += b.high_us;
  a.comm_us += b.comm_us;
  a.host_us += b.host_us;
  a.attention_host_us += b.attention_host_us;
  a.router_host_us += b.router_host_us;
  a.ops += b.ops;
  a.collectives += b.collectives;
  a.by_kind += b.by_kind;
  return a;
}

PassCosts operator*(double count, PassCosts a) {
  a.kernel_us *= count;
  a.attention_us *= count;
  a.product_us *= count;
  a.state_us *= count;
  a.low_us *= count;
  a.high_us *= count;
  a.comm_us *= count;
  a.host_us *= count;
  a.attention_host_us *= count;
  a.router_host_us *= count;
  a.ops = static_cast<std::int64_t>(count * static_cast<double>(a.ops));
  a.collectives = static_cast<std::int64_t>(count * static_cast<double>(a.collectives));
  a.by_kind *= count;
  return a;
}

PassCosts operator-(PassCosts a, const PassCosts& b) { return a + -1.0 * b; }

}  // namespace perfmodel
