#include "interrupt_guard.hpp"

#include <atomic>
#include <csignal>

#include "base/stop_point.hpp"
#include "terminal/hosted_run.hpp"

namespace perfmodel::cli {
namespace {

std::atomic<bool> interrupt_flag{false};
struct sigaction previous_action;

void note_interrupt(int) { interrupt_flag = true; }

}  // namespace

InterruptGuard::InterruptGuard() : hosted_(HostedRun::current() != nullptr) {
  if (hosted_) return;
  interrupt_flag = false;
  struct sigaction action = {};
  action.sa_handler = note_interrupt;
  action.sa_flags = SA_RESETHAND;
  sigaction(SIGINT, &action, &previous_action);
}
InterruptGuard::~InterruptGuard() {
  if (!hosted_) sigaction(SIGINT, &previous_action, nullptr);
}
bool InterruptGuard::interrupted() {
  return HostedRun::current() ? stop_asked() : interrupt_flag.load();
}

}  // namespace perfmodel::cli
