#pragma once

namespace perfmodel::cli {

/// SIGINT, SIGTERM, SIGHUP and whatever else ends a process and can be caught (a limit of CPU time,
/// a reader of standard output that is gone) do so as always, but no temporary file is left.
/// Ignored ones stay ignored (nohup). Beyond a limit of the file size, writing fails instead of
/// ending the program.
void set_up_signals();

/// Ends the program by this signal, without its temporary files. For handlers.
extern "C" void end_by_signal(int signal);

}  // namespace perfmodel::cli
