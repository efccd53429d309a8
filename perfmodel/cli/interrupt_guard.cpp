#include "interrupt_guard.hpp"

#include <atomic>
#include <csignal>

namespace perfmodel::cli {
namespace {

std::atomic<bool> interrupt_flag{false};
struct sigaction previous_action;

void note_interrupt(int) { interrupt_flag = true; }

}  // namespace

InterruptGuard::InterruptGuard() {
  interrupt_flag = false;
  struct sigaction action = {};
  action.sa_handler = note_interrupt;
  action.sa_flags = SA_RESETHAND;
  sigaction(SIGINT, &action, &previous_action);
}
InterruptGuard::~InterruptGuard() { sigaction(SIGINT, &previous_action, nullptr); }
bool InterruptGuard::interrupted() { return interrupt_flag; }

}  // namespace perfmodel::cli
