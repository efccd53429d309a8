#include "interrupt_guard.hpp"

#include <atomic>

#include "base/stop_point.hpp"
#include "terminal/hosted_run.hpp"
#include "terminal/signals.hpp"

namespace perfmodel::cli {
namespace {

std::atomic<bool> interrupt_flag{false};

void note_interrupt(int signal) {
  if (interrupt_flag.exchange(true)) end_by_signal(signal);
}

}  // namespace

InterruptGuard::InterruptGuard(bool and_terminate) {
  if (HostedRun::current()) return;
  interrupt_flag = false;
  previous_ = {{SIGINT, {}}};
  if (and_terminate) previous_.push_back({SIGTERM, {}});
  struct sigaction action = {};
  action.sa_handler = note_interrupt;
  action.sa_flags = SA_RESTART;
  for (auto& [signal, previous] : previous_) sigaction(signal, &action, &previous);
}
InterruptGuard::~InterruptGuard() {
  for (const auto& [signal, previous] : previous_) sigaction(signal, &previous, nullptr);
}
bool InterruptGuard::interrupted() {
  return HostedRun::current() ? stop_asked() : interrupt_flag.load();
}

}  // namespace perfmodel::cli
