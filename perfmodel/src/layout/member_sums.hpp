#pragma once

#include <cstddef>

namespace perfmodel {

/// Adds the listed members of `other` to the same members of `to`.
template <class Sums, class Member, std::size_t kCount>
void add_members(Sums& to, const Sums& other, Member Sums::*const (&members)[kCount]) {
  for (const auto member : members) to.*member += other.*member;
}

template <class Sums, class Member, std::size_t kCount>
void scale_members(Sums& sums, double times, Member Sums::*const (&members)[kCount]) {
  for (const auto member : members) sums.*member *= times;
}

}  // namespace perfmodel
