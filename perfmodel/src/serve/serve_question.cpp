#include "serve_question.hpp"

#include <filesystem>
#include <fstream>
#include <utility>

#include "perfmodel/detail/output_file.hpp"

namespace perfmodel::serve {
namespace {

using Ask = ServeQuestion;

constexpr ServeField kServeFields[] = {
    {"socket", &Ask::socket_path, "Listen on this Unix socket instead of serving standard input",
     "PATH"},
    {"listen", &Ask::listen,
     "Listen on TCP instead: PORT (on 127.0.0.1) or ADDRESS:PORT; a client's first line has to be "
     "{\"op\": \"login\", \"token\": ...}",
     "ADDRESS"},
    {"token_file",
     &Ask::token_file,
     "The token of --listen: the first line of this file, at least 16 characters",
     "FILE",
     {},
     {},
     nullptr,
     "listen"},
    {"state", &Ask::state_folder, "Keep graphs in this folder, so that a restart has them",
     "FOLDER"},
    {"log", &Ask::log_file, "Append a line of JSON per request to this file", "FILE"},
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
    {"max_clients",
     &Ask::max_clients,
     "Clients of the socket at once; fewer if the system's limit of open files has no more",
     "N",
     {1, 10000}},
    {"max_connections",
     &Ask::max_connections,
     "Connections of one user at once; 0: any number",
     "N",
     {0, 10000}},
    {"max_rate",
     &Ask::max_rate,
     "Requests per second of one connection, which waits for its next one; 0: any number",
     "N",
     {0, 1e9}},
    {"timeout_ms",
     &Ask::timeout_ms,
     "Time limit of one request, in milliseconds; 0: none (not for a server that others use)",
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

namespace {

// The token that clients of TCP have to know.
Result<std::string> read_token(const std::string& file) {
  constexpr std::size_t kFewest = 16;
  std::ifstream in(file);
  std::string token;
  std::getline(in, token);
  if (token.ends_with('\r')) token.pop_back();
  if (token.size() >= kFewest) return token;
  return decline("--listen: expected --token-file with a first line of at least 16 characters",
                 file);
}

}  // namespace

Result<void> with_service(ServeQuestion& question,
                          const std::function<Result<void>(Service&)>& use) {
  if (!question.allow_files.empty() && !std::filesystem::is_directory(question.allow_files)) {
    return fail(ErrorCode::kIo, "expected a folder for --allow-files, found none",
                question.allow_files);
  }
  question.predictor.read_models = true;  // tells who starts a server, not its clients
  question.socket = question.socket_path;
  question.files = question.allow_files;
  question.state = question.state_folder;
  question.log = question.log_file;
  if (!question.listen.empty()) {
    PERFMODEL_TRY(token, read_token(question.token_file));
    question.token = std::move(*token);
  }
  if (!question.state.empty()) {
    auto made = make_folder(question.state, "expected a folder for --state, found: ");
    if (!made) return made;
  }
  question.max_graph_bytes = question.max_graph_mib << 20;
  question.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(question.timeout_ms));
  PERFMODEL_TRY(predictor, Predictor::load(question.predictor));
  Service service(std::move(*predictor), question);
  PERFMODEL_TRY_TO(service.open());
  return use(service);
}

Result<void> with_server(ServeQuestion question, const std::function<Result<void>(Server&)>& use) {
  return with_service(question, [&](Service& service) -> Result<void> {
    PERFMODEL_TRY(server, Server::open(service, question));
    return use(*server);
  });
}

}  // namespace perfmodel::serve
