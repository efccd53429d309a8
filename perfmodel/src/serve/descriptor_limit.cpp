#include "descriptor_limit.hpp"

#include <sys/resource.h>

#include <algorithm>

namespace perfmodel::serve {

std::size_t room_for_clients(std::size_t clients, std::size_t others) noexcept {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return clients;
  const rlim_t wanted = clients + others;
  if (limit.rlim_cur < wanted) {
    const rlimit raised{std::min(wanted, limit.rlim_max), limit.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  const rlim_t most = std::min(limit.rlim_cur, wanted);
  return most > others ? most - others : 1;
}

}  // namespace perfmodel::serve
