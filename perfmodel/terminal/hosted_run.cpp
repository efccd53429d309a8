#include "hosted_run.hpp"

namespace perfmodel::cli {
namespace {

thread_local HostedRun* hosted_here = nullptr;

}  // namespace

HostedRun::HostedRun(std::size_t most) : most_bytes(most), outer_(hosted_here) {
  hosted_here = this;
}
HostedRun::~HostedRun() { hosted_here = outer_; }
HostedRun* HostedRun::current() { return hosted_here; }

}  // namespace perfmodel::cli
