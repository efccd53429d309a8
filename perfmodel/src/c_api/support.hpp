#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/budget.hpp"
#include "base/plain_text.hpp"
#include "perfmodel.h"
#include "perfmodel/graph/rewrites/memory.hpp"
#include "perfmodel/graph/trace.hpp"
#include "perfmodel/predictor.hpp"

namespace perfmodel::c_api {

// Samples per step of a graph, found once, when first asked for.
class FoundBatch {
 public:
  std::optional<std::int64_t> of(const ExecutionGraph& graph) const {
    std::call_once(once_, [&] {
      if (const auto found = samples_per_step(graph)) batch_ = *found;
    });
    return batch_;
  }

 private:
  mutable std::once_flag once_;
  mutable std::optional<std::int64_t> batch_;
};

}  // namespace perfmodel::c_api

// The types of the handles. They are immutable, except the last.

struct perfmodel_predictor {
  perfmodel::Predictor predictor;
  std::vector<std::string> gpus;
};

struct perfmodel_graph {
  std::shared_ptr<const perfmodel::ExecutionGraph> plain;
  std::optional<perfmodel::PreparedGraph> prepared;           // instead
  std::shared_ptr<const perfmodel::c_api::FoundBatch> batch;  // set if the graph is plain
  std::shared_ptr<const perfmodel::Trace> trace;              // the trace that a plain one was made
                                                              // from

  const perfmodel::ExecutionGraph& graph() const { return prepared ? prepared->graph() : *plain; }
};

struct perfmodel_cancel {
  std::stop_source source;
};

struct perfmodel_prediction {
  perfmodel_graph graph;  // the names of ops point into it
  perfmodel::Prediction prediction;
  perfmodel::Explanation explanation;
  std::set<std::string, std::less<>> texts;  // names with a NUL at their end, each once

  const char* keep(std::string_view text) {
    const auto found = texts.find(text);
    return (found != texts.end() ? found : texts.emplace(text).first)->c_str();
  }
  const char* kept(std::string_view text) const { return texts.find(text)->c_str(); }
};

namespace perfmodel::c_api {

// Copies what fits; a cut text ends in "..." and never within a character.
inline void write_message(perfmodel_error* error, std::string_view text) noexcept {
  if (error == nullptr) return;
  std::size_t size = text.size();
  if (size >= sizeof error->message) {
    size = sizeof error->message - sizeof "...";
    while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) --size;
  }
  std::memcpy(error->message, text.data(), size);
  if (size < text.size()) {
    std::memcpy(error->message + size, "...", 3);
    size += 3;
  }
  error->message[size] = '\0';
}

inline perfmodel_status failed(perfmodel_error* error, perfmodel_status status,
                               std::string_view message) noexcept {
  write_message(error, message);
  return status;
}

perfmodel_status status_of(ErrorCode code) noexcept;

inline std::string message_of(const Error& problem) {
  return problem.code == ErrorCode::kOutOfMemory ? "out of memory" : plain_text(to_string(problem));
}

inline perfmodel_status failed(perfmodel_error* error, const Error& problem) {
  return failed(error, status_of(problem.code), message_of(problem));
}

inline perfmodel_status null_argument(perfmodel_error* error, const char* name) noexcept {
  write_message(error, "expected a pointer, found NULL: ");
  if (error) {
    const std::size_t used = std::strlen(error->message);
    std::strncpy(error->message + used, name, sizeof error->message - used - 1);
  }
  return PERFMODEL_ERROR_ARGUMENT;
}

/// A pointer that a caller must give.
struct Argument {
  const void* given;
  const char* name;
};
using Arguments = std::initializer_list<Argument>;

// PERFMODEL_OK, or the first argument that is NULL.
inline perfmodel_status check_given(Arguments arguments, perfmodel_error* error) noexcept {
  for (const Argument& argument : arguments) {
    if (argument.given == nullptr) return null_argument(error, argument.name);
  }
  return PERFMODEL_OK;
}

// Runs `work`, which returns a status, if all arguments are given; what it throws becomes a status.
template <class Work>
perfmodel_status guarded(perfmodel_error* error, Arguments arguments, Work&& work) noexcept {
  if (const auto bad = check_given(arguments, error)) return bad;
  write_message(error, "");
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return failed(error, PERFMODEL_ERROR_OUT_OF_MEMORY, "out of memory");
  } catch (const OverBudget& over) {
    return failed(error, PERFMODEL_ERROR_IMPOSSIBLE, over.what());
  } catch (const std::length_error&) {  // sizes that no memory holds
    return failed(error, PERFMODEL_ERROR_OUT_OF_MEMORY, "out of memory");
  } catch (const Stopped&) {
    return failed(error, PERFMODEL_ERROR_CANCELLED, "cancelled");
  } catch (const std::exception& exception) {
    return failed(error, PERFMODEL_ERROR_INTERNAL, exception.what());
  } catch (...) {
    return failed(error, PERFMODEL_ERROR_INTERNAL, "unknown exception");
  }
}

// The same for work that returns a new object in `out`, which is NULL until then.
template <class Handle, class Work>
perfmodel_status guarded_new(Handle** out, perfmodel_error* error, Arguments arguments,
                             Work&& work) noexcept {
  if (out == nullptr) return null_argument(error, "out");
  *out = nullptr;
  return guarded(error, arguments, std::forward<Work>(work));
}

// Whether the library knows the size of a caller's struct. `first` is the size that it had in
// version 1.
template <class Struct>
perfmodel_status check_room(const Struct* to, std::size_t first, perfmodel_error* error) noexcept {
  if (to->struct_size >= first && to->struct_size <= sizeof(Struct)) return PERFMODEL_OK;
  return failed(error, PERFMODEL_ERROR_VERSION,
                "expected a struct_size that this version of the library knows");
}

// A struct of the caller's header as this library knows it: what the caller's lacks is zero.
template <class Struct>
perfmodel_status copy_struct(const Struct* given, std::size_t first, Struct& copy,
                             perfmodel_error* error) noexcept {
  if (const auto bad = check_room(given, first, error)) return bad;
  std::memset(&copy, 0, sizeof copy);
  std::memcpy(&copy, given, given->struct_size);
  return PERFMODEL_OK;
}

// Writes as much of `from` as the caller's struct has room for; its struct_size stays.
template <class Struct>
void write_struct(const Struct& from, Struct* to) noexcept {
  std::memcpy(reinterpret_cast<char*>(to) + sizeof(std::size_t),
              reinterpret_cast<const char*>(&from) + sizeof(std::size_t),
              to->struct_size - sizeof(std::size_t));
}

// Zeroes the caller's struct, which is an argument `name`, before it is filled.
template <class Struct>
perfmodel_status clear_struct(Struct* to, const char* name, std::size_t first,
                              perfmodel_error* error) noexcept {
  if (to == nullptr) return null_argument(error, name);
  if (const auto bad = check_room(to, first, error)) return bad;
  write_struct(Struct{}, to);
  return PERFMODEL_OK;
}

// Sizes of the structs in version 1. Fields are added at the end; these stay.
inline constexpr std::size_t kConfigSize = sizeof(perfmodel_config);
inline constexpr std::size_t kModelSize = sizeof(perfmodel_model);
inline constexpr std::size_t kOptionsSize = offsetof(perfmodel_options, host_scale);
inline constexpr std::size_t kTotalsSize = offsetof(perfmodel_totals, samples_per_s);
inline constexpr std::size_t kQuestionSize = sizeof(perfmodel_question);
inline constexpr std::size_t kOpSize = sizeof(perfmodel_op);
inline constexpr std::size_t kKernelSize = sizeof(perfmodel_kernel);
#if defined(__LP64__)
static_assert(kConfigSize == 56 && kModelSize == 56 && kOptionsSize == 72 && kTotalsSize == 152 &&
              kQuestionSize == 32 && kOpSize == 64 && kKernelSize == 80);
#endif

inline constexpr std::size_t kPlaceSize = sizeof(perfmodel_place);
inline constexpr std::size_t kAskOptionsSize = sizeof(perfmodel_ask_options);

// Copies what fits.
template <std::size_t kSize>
void write_text(std::string_view text, char (&to)[kSize]) noexcept {
  const std::size_t size = std::min(text.size(), kSize - 1);
  std::memcpy(to, text.data(), size);
  to[size] = '\0';
}

// `place` may be NULL.
inline perfmodel_status clear_place(perfmodel_place* place, perfmodel_error* error) noexcept {
  return place == nullptr ? PERFMODEL_OK : clear_struct(place, "place", kPlaceSize, error);
}

// Where an error was found. `place` may be NULL and was checked.
inline void write_place(const Error& from, perfmodel_place* place) {
  if (place == nullptr) return;
  perfmodel_place found = {};
  found.line = from.line;
  found.column = from.column;
  write_text(from.file.string(), found.file);
  write_text(plain_text(from.json_pointer), found.pointer);
  write_text(plain_text(from.message), found.message);
  write_struct(found, place);
}

inline std::string text_or_empty(const char* text) { return text ? text : ""; }

}  // namespace perfmodel::c_api
