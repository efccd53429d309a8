// The C interface: commands as one JSON object in, one out.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/plain_text.hpp"
#include "base/stop_point.hpp"
#include "serve/run_command.hpp"
#include "support.hpp"

struct perfmodel_answer {
  perfmodel::serve::CommandAnswer answer;
};

namespace perfmodel::c_api {
namespace {

constexpr std::size_t kMostRequestBytes = std::size_t{64} << 20;

// A command line that cannot be understood is an argument that the caller got wrong.
perfmodel_status status_of_answer(const serve::CommandAnswer& answer) {
  if (answer.is_bad_request && answer.error->code == ErrorCode::kImpossible) {
    return PERFMODEL_ERROR_ARGUMENT;
  }
  return status_of(answer.error->code);
}

StopRules rules_of(const perfmodel_ask_options& options) {
  StopRules rules;
  if (options.cancel) rules.token = options.cancel->source.get_token();
  if (options.timeout_ms > 0) {
    constexpr std::int64_t kMost = 1'000'000'000'000;  // 30 years
    rules.deadline = std::chrono::steady_clock::now() +
                     std::chrono::milliseconds(std::min(options.timeout_ms, kMost));
  }
  return rules;
}

perfmodel_status stopped(const StopRules& rules, perfmodel_error* error) {
  return failed(error, PERFMODEL_ERROR_CANCELLED,
                rules.token.stop_requested() ? "cancelled" : "cancelled: the time is over");
}

}  // namespace
}  // namespace perfmodel::c_api

using namespace perfmodel;
using namespace perfmodel::c_api;

perfmodel_status perfmodel_ask(const char* request, size_t size,
                               const perfmodel_ask_options* options, perfmodel_answer** out,
                               perfmodel_place* place, perfmodel_error* error) {
  if (out == nullptr) return null_argument(error, "out");
  *out = nullptr;
  if (const auto bad = clear_place(place, error)) return bad;
  return guarded(error, {{request, "request"}}, [&] {
    if (size > kMostRequestBytes) {
      return failed(error, PERFMODEL_ERROR_ARGUMENT, "expected a request of at most 64 MiB");
    }
    perfmodel_ask_options given = {};
    given.struct_size = sizeof given;
    if (options != nullptr) {
      if (const auto bad = copy_struct(options, kAskOptionsSize, given, error)) return bad;
    }
    const StopRules rules = rules_of(given);
    const StopScope scope(&rules);
    auto reply = std::make_unique<perfmodel_answer>();
    try {
      stop_point();
      reply->answer = serve::run_request({request, size}, given.max_answer_bytes);
    } catch (const Stopped&) {
      return stopped(rules, error);
    }
    if (rules.stopped()) return stopped(rules, error);  // a search ends with the results so far
    if (const auto& problem = reply->answer.error) {
      write_place(*problem, place);
      return failed(error, status_of_answer(reply->answer), message_of(*problem));
    }
    *out = reply.release();
    return PERFMODEL_OK;
  });
}

const char* perfmodel_answer_text(const perfmodel_answer* answer, size_t* size) {
  if (size) *size = answer ? answer->answer.document.size() : 0;
  return answer ? answer->answer.document.c_str() : nullptr;
}

size_t perfmodel_answer_message_count(const perfmodel_answer* answer) {
  return answer ? answer->answer.messages.size() : 0;
}

const char* perfmodel_answer_message(const perfmodel_answer* answer, size_t index) {
  if (index >= perfmodel_answer_message_count(answer)) return nullptr;
  return answer->answer.messages[index].c_str();
}

void perfmodel_answer_free(perfmodel_answer* answer) { delete answer; }
