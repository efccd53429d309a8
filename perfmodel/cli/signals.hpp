#pragma once

namespace perfmodel::cli {

/// SIGINT, SIGTERM and SIGHUP end the program as they always do, but no temporary file stays
/// behind. Ignored ones stay ignored (nohup). Beyond a limit of the file size, writing fails
/// instead of ending the program.
void set_up_signals();

/// Ends the program by this signal, without its temporary files. For handlers.
extern "C" void end_by_signal(int signal);

}  // namespace perfmodel::cli
