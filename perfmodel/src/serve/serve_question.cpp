#include "serve_question.hpp"

#include <filesystem>
#include <utility>

namespace perfmodel::serve {
namespace {

using Ask = ServeQuestion;

constexpr ServeField kServeFields[] = {
    {"socket", &Ask::socket_path, "Listen on this Unix socket instead of serving standard input",
     "PATH"},
    {"allow_files", &Ask::allow_files, "Clients of the socket may load graphs below this folder",
     "FOLDER"},
    {"threads",
     &Ask::threads,
     "Threads that answer; 0: as many as the machine runs at once",
     "N",
     {0, 1024}},
    {"costly_threads",
     &Ask::costly_threads,
     "More threads, for requests that take long (build, load, searches, commands, "
     "large graphs), "
     "at low priority, clients taking turns (default: half as many; none with one)",
     "N",
     {0, 1024}},
    {"max_request", &Ask::max_request, "Bytes of one request", "BYTES", {64, 1LL << 31}},
    {"max_clients", &Ask::max_clients, "Clients of the socket at once", "N", {1, 10000}},
    {"timeout_ms",
     &Ask::timeout_ms,
     "Time limit of one request, in milliseconds; 0: none",
     "MS",
     {0, 1e9}},
    {"max_graphs", &Ask::max_graphs, "Graphs held at once", "N", {1, 1e6}},
    {"max_graph_mib", &Ask::max_graph_mib, "Memory of all graphs, in MiB", "MIB", {1, 1 << 20}},
    {"max_command_mib",
     &Ask::max_command_mib,
     "Memory of one command that a client asks for (ask), in MiB",
     "MIB",
     {64, 1 << 20}}};

}  // namespace

std::span<const ServeField> serve_fields() { return kServeFields; }

Result<void> with_server(ServeQuestion question, const std::function<Result<void>(Server&)>& use) {
  if (!question.allow_files.empty() && !std::filesystem::is_directory(question.allow_files)) {
    return Unexpected{Error{.code = ErrorCode::kIo,
                            .message = "expected a folder for --allow-files, found none",
                            .file = question.allow_files}};
  }
  question.predictor.read_models = true;  // tells who starts a server, not its clients
  question.socket = question.socket_path;
  question.files = question.allow_files;
  question.max_graph_bytes = question.max_graph_mib << 20;
  question.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(question.timeout_ms));
  auto predictor = Predictor::load(question.predictor);
  if (!predictor) return Unexpected{predictor.error()};
  Service service(std::move(*predictor), question);
  auto server = Server::open(service, question);
  if (!server) return Unexpected{server.error()};
  return use(*server);
}

}  // namespace perfmodel::serve
