#include "signals.hpp"

#include <csignal>

#include "base/temporary_files.hpp"

namespace perfmodel::cli {

extern "C" void end_by_signal(int signal) {
  remove_temporary_files();
  std::signal(signal, SIG_DFL);
  std::raise(signal);  // delivered when the handler returns
}

void set_up_signals() {
  std::signal(SIGXFSZ, SIG_IGN);
  for (const int signal :
       {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGXCPU, SIGALRM, SIGVTALRM, SIGUSR1, SIGUSR2}) {
    struct sigaction action = {};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_DFL) continue;
    action.sa_handler = end_by_signal;
    sigaction(signal, &action, nullptr);
  }
}

}  // namespace perfmodel::cli
