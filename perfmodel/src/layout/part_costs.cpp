#include "part_costs.hpp"

#include "member_sums.hpp"

namespace perfmodel {
namespace {

constexpr double CollectiveSum::*kSums[] = {&CollectiveSum::count, &CollectiveSum::bytes,
                                            &CollectiveSum::us};
constexpr CollectiveSum CollectiveSums::*kKindsOfCollectives[] = {
    &CollectiveSums::all_reduce, &CollectiveSums::all_gather, &CollectiveSums::reduce_scatter};
constexpr double PassCosts::*kCostTimes[] = {
    &PassCosts::kernel_us,     &PassCosts::attention_us, &PassCosts::product_us,
    &PassCosts::state_us,      &PassCosts::low_us,       &PassCosts::high_us,
    &PassCosts::comm_us,       &PassCosts::host_us,      &PassCosts::attention_host_us,
    &PassCosts::router_host_us};
constexpr std::int64_t PassCosts::*kCostCounts[] = {&PassCosts::ops, &PassCosts::collectives};

}  // namespace

DType weights_of(LayoutJob::Precision precision) {
  if (precision == LayoutJob::Precision::kFp32) return DType::kFloat32;
  return precision == LayoutJob::Precision::kFp16 ? DType::kFloat16 : DType::kBFloat16;
}

double weight_width(LayoutJob::Precision precision) {
  return static_cast<double>(size_in_bytes(weights_of(precision)));
}

CollectiveSums& CollectiveSums::operator+=(const CollectiveSums& other) {
  for (const auto kind : kKindsOfCollectives) add_members(this->*kind, other.*kind, kSums);
  return *this;
}

CollectiveSums& CollectiveSums::operator*=(double times) {
  for (const auto kind : kKindsOfCollectives) scale_members(this->*kind, times, kSums);
  return *this;
}

PassCosts operator+(PassCosts a, const PassCosts& b) {
  add_members(a, b, kCostTimes);
  add_members(a, b, kCostCounts);
  a.by_kind += b.by_kind;
  return a;
}

PassCosts operator*(double count, PassCosts a) {
  scale_members(a, count, kCostTimes);
  for (const auto member : kCostCounts) {
    a.*member = static_cast<std::int64_t>(count * static_cast<double>(a.*member));
  }
  a.by_kind *= count;
  return a;
}

PassCosts operator-(PassCosts a, const PassCosts& b) { return a + -1.0 * b; }

}  // namespace perfmodel
