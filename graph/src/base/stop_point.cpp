#include "stop_point.hpp"

namespace perfmodel {
namespace {

thread_local const StopRules* rules_here = nullptr;

}  // namespace

StopScope::StopScope(const StopRules* rules) noexcept : outer_(rules_here) { rules_here = rules; }
StopScope::~StopScope() { rules_here = outer_; }

const StopRules* stop_rules() noexcept { return rules_here; }
bool stop_asked() noexcept { return rules_here != nullptr && rules_here->stopped(); }

void stop_point() {
  if (stop_asked()) throw Stopped{};
}

}  // namespace perfmodel
