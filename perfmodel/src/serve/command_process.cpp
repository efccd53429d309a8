#include "command_process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "answers.hpp"
#include "descriptor.hpp"
#include "keep_to_folders.hpp"
#include "perfmodel/data_files.hpp"

namespace perfmodel::serve {
namespace {

// A file in memory through which the processes talk: the writer never waits for the reader.
Descriptor memory_file() { return Descriptor(memfd_create("perfpredict", MFD_CLOEXEC)); }

bool write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

// The whole file, or nothing if a part of it cannot be read.
std::string read_all(int descriptor) {
  std::string text;
  std::array<char, 1 << 16> piece;
  if (lseek(descriptor, 0, SEEK_SET) < 0 && errno != ESPIPE) return {};
  for (;;) {
    const ssize_t got = read(descriptor, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return {};
    if (got == 0) return text;
    text.append(piece.data(), static_cast<std::size_t>(got));
  }
}

Json error_json(const Error& error) {
  return {{"code", static_cast<int>(error.code)},
          {"message", error.message},
          {"file", error.file.string()},
          {"pointer", error.json_pointer},
          {"line", error.line},
          {"column", error.column}};
}

Error error_of(const Json& json) {
  return {.code = static_cast<ErrorCode>(json["code"].get<int>()),
          .message = json["message"],
          .file = json["file"].get<std::string>(),
          .json_pointer = json["pointer"],
          .line = json["line"],
          .column = json["column"]};
}

// The head on a line of its own, followed by the document.
std::string answer_text(const CommandAnswer& answer) {
  Json head = {{"messages", answer.messages}, {"usage", answer.is_bad_request}};
  if (answer.error) head["error"] = error_json(*answer.error);
  return json_line(head) + "\n" + answer.document;
}

Result<CommandAnswer> parse_answer(std::string text) {
  const std::size_t end = text.find('\n');
  const Json head =
      end == std::string::npos ? Json() : Json::parse(text.substr(0, end), nullptr, false);
  if (!head.is_object()) {
    return decline("expected an answer of the command, found none");
  }
  CommandAnswer answer{.messages = head["messages"]};
  if (head.contains("error")) {
    answer.error = error_of(head["error"]);
    answer.is_bad_request = head["usage"].get<bool>();
  }
  text.erase(0, end + 1);
  answer.document = std::move(text);
  return answer;
}

// Starts this program again, in the question's folder; its number.
std::optional<pid_t> start_process(const CommandQuestion& question, int in, int out) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  if (posix_spawn_file_actions_init(&files) != 0) return std::nullopt;
  if (posix_spawnattr_init(&attributes) != 0) {
    posix_spawn_file_actions_destroy(&files);
    return std::nullopt;
  }
  // Without one of them the process would read and write the lines of the server. Messages of a
  // library that ends the process are no such lines, either.
  bool ready =
      posix_spawn_file_actions_adddup2(&files, in, STDIN_FILENO) == 0 &&
      posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO) == 0 &&
      posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0) == 0 &&
      posix_spawn_file_actions_addchdir_np(&files, question.folder.c_str()) == 0;
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::string words[] = {"perfpredict", "serve", "--answer-command"};
  char* const arguments[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  pid_t process = 0;
  ready = ready &&
          posix_spawn(&process, "/proc/self/exe", &files, &attributes, arguments, environ) == 0;
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return ready ? std::optional(process) : std::nullopt;
}

// Its wait status, if the system tells. It is killed when `cancel` says so; while the number is
// still its own.
std::optional<int> wait_for(pid_t process, const std::stop_token& cancel) {
  {
    const std::stop_callback killing(cancel, [process] { kill(process, SIGKILL); });
    siginfo_t ended;
    while (waitid(P_PID, static_cast<id_t>(process), &ended, WEXITED | WNOWAIT) != 0 &&
           errno == EINTR) {
    }
  }
  int status = 0;
  pid_t ended = -1;
  while ((ended = waitpid(process, &status, 0)) < 0 && errno == EINTR) {
  }
  return ended == process ? std::optional(status) : std::nullopt;
}

void bound_resource(int resource, std::size_t most) {
  const rlimit limit{most, most};
  setrlimit(static_cast<__rlimit_resource>(resource), &limit);
}

// AddressSanitizer does; GCC defines a macro for it, clang 14 has a question.
constexpr bool reserves_terabytes() {
#if defined(__SANITIZE_ADDRESS__)
  return true;
#elif defined(__has_feature)
  return __has_feature(address_sanitizer);
#else
  return false;
#endif
}

void bound_process(const Json& question) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  bound_resource(RLIMIT_CORE, 0);
  const auto memory = question["memory_bytes"].get<std::size_t>();
  bound_resource(RLIMIT_FSIZE, memory);
  if (!reserves_terabytes()) bound_resource(RLIMIT_DATA, memory);
}

CommandAnswer answer_question(const Json& question, decltype(run_request)& run) {
  const auto data = question["data"].get<std::string>();
  const auto folder = question["folder"].get<std::string>();
  const auto files = question["files"].get<std::string>();
  setenv("PERFMODEL_DATA", data.c_str(), 1);  // the same, whatever folder this process runs in
  setenv("TMPDIR", folder.c_str(), 1);
  bound_process(question);
  if (!question["any_file"].get<bool>()) {
    std::vector<std::filesystem::path> read = {data};
    if (!files.empty()) read.emplace_back(files);
    if (auto kept = keep_to_folders(read, {folder}); !kept) return {.error = kept.error()};
  }
  try {
    return run(question["request"].get<std::string>(), question["answer_bytes"].get<std::size_t>());
  } catch (const std::bad_alloc&) {
    return {.error = Error{.code = ErrorCode::kOutOfMemory, .message = "out of memory"}};
  }
}

}  // namespace

Result<CommandAnswer> run_in_process(const CommandQuestion& question, const CommandLimits& limits) {
  PERFMODEL_TRY(data, find_data_folder());
  std::error_code failure;
  const Json asked = {
      {"request", question.request},
      {"any_file", question.any_file},
      {"folder", question.folder.string()},
      {"files",
       question.files.empty() ? "" : std::filesystem::absolute(question.files, failure).string()},
      {"data", std::filesystem::absolute(*data, failure).string()},
      {"memory_bytes", limits.memory_bytes},
      {"answer_bytes", limits.answer_bytes}};
  const Descriptor in = memory_file(), out = memory_file();
  if (in.number() < 0 || out.number() < 0 || !write_all(in.number(), json_line(asked))) {
    return fail(ErrorCode::kOutOfMemory, "out of memory");
  }
  lseek(in.number(), 0, SEEK_SET);
  const auto process = start_process(question, in.number(), out.number());
  if (!process) return decline("expected one more process, found none to have");
  const std::optional<int> status = wait_for(*process, question.cancel);
  if (question.cancel.stop_requested()) return fail(ErrorCode::kCancelled, "cancelled");
  if (status && WIFSIGNALED(*status)) {
    return decline("expected a command that ends by itself, found one that a signal ended (" +
                   std::to_string(WTERMSIG(*status)) + "), as where memory lacks");
  }
  if (status != 0) {  // it could not write all of its answer
    return decline("expected the whole answer of the command, found less");
  }
  return parse_answer(read_all(out.number()));
}

Result<void> answer_in_process(decltype(run_request)& run) {
  const Json question = Json::parse(read_all(STDIN_FILENO), nullptr, false);
  if (!question.is_object()) {
    return decline("expected a question of a server on standard input");
  }
  const std::string text = answer_text(answer_question(question, run));
  // Neither sanitizers nor destructors have anything to do that is worth files or time.
  _exit(write_all(STDOUT_FILENO, text) ? 0 : 1);
}

}  // namespace perfmodel::serve
