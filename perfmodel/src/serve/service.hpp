#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <stop_token>
#include <string>

#include "caller.hpp"
#include "perfmodel/predictor.hpp"
#include "run_command.hpp"

namespace perfmodel::serve {

inline constexpr int kProtocolVersion = 1;

struct ServiceOptions {
  std::size_t max_graphs = 256;                             ///< held at once
  std::size_t max_graph_bytes = std::size_t{4} << 30;       ///< limit of their sum, estimated
  std::uintmax_t max_file_bytes = std::uintmax_t{1} << 30;  ///< limit of a file to load, as stored
  std::chrono::milliseconds timeout{0};                     ///< per request; 0: none
  RunCommand run_command = {};                              ///< runs `ask`; none: it is refused
  std::filesystem::path state = {};  ///< folder that keeps graphs for a restart; empty: none does
  std::filesystem::path log = {};    ///< file that gets a line per request; empty: none
};

/// Requests that wait for a thread, as `stats` and `health` tell.
struct Backlog {
  std::atomic<std::size_t> quick = 0, costly = 0;
};

/// Answers requests of the protocol in docs/serve.md: one JSON object in, one out. Knows nothing of
/// sockets. Thread-safe: any number of requests may be answered at once.
///
/// Memory: the predictor's, the graphs' (bounded by the options), and the requests' at work (a
/// request that holds a graph takes some 10 times its text).
///
/// ```
/// serve::Service service(*Predictor::load(), {});
/// service.answer(R"({"id": 1, "op": "build", "name": "d", "family": "dlrm"})", {});
/// service.answer(R"({"id": 2, "op": "predict", "graph": "d", "gpu": "h100-sxm-80gb"})", {});
/// ```
class Service {
 public:
  Service(Predictor predictor, const ServiceOptions& options);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  using Clock = std::chrono::steady_clock;

  /// Opens the log and reads the kept graphs. Errors: a folder, a graph or a log that cannot be
  /// read or written.
  Result<void> open();

  /// The answer to one line (without its newline), without a newline. Never fails and never throws:
  /// an error in a request is its answer. `arrived`: from when on its latency counts.
  std::string answer(std::string line, const Caller& caller,
                     Clock::time_point arrived = Clock::now()) noexcept;

  /// Whether the answer may take more than some milliseconds: it makes or reads a graph, searches,
  /// or asks about a graph of many nodes. A guess from the line alone, in microseconds.
  bool is_costly(const std::string& line) const noexcept;

  Backlog& backlog() noexcept;

  /// The answer to a line of more than `limit` bytes, which was not read to its end.
  std::string answer_too_large(std::size_t limit, const Caller& caller,
                               Clock::time_point arrived) noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace perfmodel::serve
