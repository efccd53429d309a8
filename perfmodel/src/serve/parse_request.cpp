#include "request.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <simdjson.h>

#include <algorithm>
#include <new>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <variant>
#include <vector>

#include "base/secrets.hpp"
#include "base/size_limits.hpp"
#include "request_fields.hpp"
#include "request_rewrites.hpp"

namespace perfmodel::serve {
namespace {

namespace ondemand = simdjson::ondemand;
using ondemand::json_type;

constexpr std::size_t kMaxId = 256, kMaxText = 4096;

/// Numbers that a key accepts.
struct Numbers {
  std::string_view name;
  bool (*hold)(double number);
};
constexpr Numbers kFactors = {"a number above 0, at most 1000000",
                              [](double number) { return number > 0 && number <= 1e6; }};
constexpr Numbers kTimes = {"a number above 0, at most 1e12",
                            [](double number) { return number > 0 && number <= 1e12; }};
constexpr Numbers kShares = {"a number of at least 0, below 1",
                             [](double number) { return number >= 0 && number < 1; }};

template <class Value>
Value plain(const Value&);
template <class Value>
Value plain(const std::optional<Value>&);

Problem bad(std::string message) { return {"bad_request", std::move(message)}; }

// Kept short: text of strangers is not repeated at length.
std::string in_quotes(std::string_view text) { return '"' + shown_text(text, 40) + '"'; }

Problem syntax(simdjson::error_code code) {
  if (code == simdjson::MEMALLOC) throw std::bad_alloc();
  return bad(fmt::format("expected a JSON object, found: {}", simdjson::error_message(code)));
}

// Broken text is told apart from text of another type.
bool broken(simdjson::error_code code) {
  return code == simdjson::STRING_ERROR || code == simdjson::UTF8_ERROR ||
         code == simdjson::UNESCAPED_CHARS || code == simdjson::TAPE_ERROR;
}

// Keys that are duplicate, lacking or unknown to the operation, and other contradictions.
std::optional<Problem> check_keys(const RequestOp& row, std::vector<std::string> keys,
                                  const Request& request) {
  std::ranges::sort(keys);
  if (const auto twice = std::ranges::adjacent_find(keys); twice != keys.end()) {
    return bad(fmt::format("/{}: expected one such key, found two", *twice));
  }
  for (const std::string& key : keys) {
    if (key == "id" || key == "op") continue;
    if (std::ranges::find(row.keys, key) == row.keys.end()) {
      return bad(fmt::format("/{}: expected no such key in the operation {}", key, row.name));
    }
  }
  for (const std::string_view key : row.needed) {
    if (std::ranges::find(keys, key) == keys.end()) {
      return bad(fmt::format("/{}: expected one in the operation {}, found none", key, row.name));
    }
  }
  if (row.op == Op::kLoad && (request.file.empty() == request.inline_graph.empty())) {
    return bad("expected either a file or an object \"graph\" to load");
  }
  if (row.op != Op::kLoad && !request.inline_graph.empty()) {
    return bad("/graph: expected the name of a graph, found an object");
  }
  if (request.strategy && request.world == 0 && row.op != Op::kDuration) {
    return bad("/world: expected one with a strategy");
  }
  return std::nullopt;
}

// A layout takes over keys that graphs have too.
void share_with_layout(Request& request) {
  LayoutAsk& layout = request.layout;
  if (request.layers > 0) layout.layers = request.layers;
  if (request.sequence > 0) layout.sequence = request.sequence;
  layout.optimizer = request.optimizer;
  if (request.world > 0) layout.world = request.world;
}

class LineReader {
 public:
  LineReader(std::string& line, Request& request) : line_(line), request_(request) {}

  std::optional<Problem> read() {
    // Large lines are rare; the memory for one is not kept.
    thread_local ondemand::parser small;
    ondemand::parser large;
    ondemand::parser& parser = line_.size() < kKeptBytes ? small : large;
    ondemand::document document;
    line_.reserve(line_.size() + simdjson::SIMDJSON_PADDING);
    if (auto code = parser.iterate(line_.data(), line_.size(), line_.capacity()).get(document)) {
      return syntax(code);
    }
    ondemand::object object;
    if (auto code = document.get_object().get(object)) {
      return code == simdjson::INCORRECT_TYPE ? bad("expected an object, found something else")
                                              : syntax(code);
    }
    for (auto field : object) {
      std::string_view key;
      if (auto code = field.unescaped_key().get(key)) return syntax(code);
      ondemand::value value = field.value();
      keys_.emplace_back(key);
      if (const auto code = member(keys_.back(), value)) return syntax(code);
    }
    const char* rest = nullptr;
    if (!document.current_location().get(rest)) {
      return bad("expected one JSON object, found more after it");
    }
    if (first_) return first_;
    if (row_ == nullptr) return bad("/op: expected an operation, found none");
    if (auto misfit = check_keys(*row_, std::move(keys_), request_)) return misfit;
    if (row_->op == Op::kLayout || row_->op == Op::kLayoutRank) share_with_layout(request_);
    return std::nullopt;
  }

 private:
  static constexpr std::size_t kKeptBytes = std::size_t{1} << 20;

  void problem(std::string message) {
    if (!first_) first_ = bad(std::move(message));
  }

  // Keeps the first problem of a value; only broken JSON ends the reading.
  simdjson::error_code member(const std::string& key, ondemand::value& value) {
    if (key == "id") return id(value);
    if (key == "op") return op(value);
    if (key == "graph") return graph(value);
    if (key == "arguments") return raw(key, value, json_type::array, request_.arguments);
    if (key == "options") return raw(key, value, json_type::object, request_.options);
    if (key == "outputs") return raw(key, value, json_type::array, request_.outputs);
    if (key == "files") return raw(key, value, json_type::object, request_.files);
    if (key == "gpus") return raw(key, value, json_type::array, request_.gpus);
    if (key == "worlds") return raw(key, value, json_type::array, request_.worlds);
    if (key == "rewrites") return rewrites(value);
    if (key == "model") return text(key, value, request_.layout.model);
    if (const RequestField* field = find_request_field(key)) {
      const auto set = [&](auto member) {
        const Numbers& numbers = key == "measured_us" ? kTimes : kFactors;
        return read(key, value, request_.*member, field->range.high, numbers);
      };
      return std::visit(set, field->member);
    }
    if (const LayoutField* field = find_layout_field(key)) {
      const auto set = [&](auto member) {
        return read(key, value, request_.layout.*member, kMaxSize, kShares);
      };
      return std::visit(set, field->member);
    }
    problem(fmt::format("expected keys that the protocol knows, found {}", in_quotes(key)));
    return simdjson::SUCCESS;
  }

  // `most` bounds counts, `numbers` other numbers that are always given.
  template <class Value>
  simdjson::error_code read(std::string_view key, ondemand::value& value, Value& to, double most,
                            const Numbers& numbers) {
    if constexpr (std::is_same_v<Value, std::string>) {
      return text(key, value, to);
    } else if constexpr (std::is_same_v<Value, std::optional<ParallelStrategy>>) {
      return strategy(value);
    } else {
      decltype(plain(to)) found{};
      std::string expected;
      if constexpr (std::is_same_v<decltype(found), bool>) {
        if (value.get_bool().get(found)) expected = "true or false";
      } else if constexpr (std::is_same_v<decltype(found), std::int64_t>) {
        const auto last = static_cast<std::int64_t>(most);
        if (value.get_int64().get(found) || found < 1 || found > last) {
          expected = fmt::format("a whole number from 1 to {}", last);
        }
      } else if constexpr (std::is_same_v<Value, std::optional<double>>) {
        // The checks of a layout know the meaning of each number.
        if (value.get_double().get(found)) expected = "a number";
      } else if (value.get_double().get(found) || !numbers.hold(found)) {
        expected = numbers.name;
      }
      if (expected.empty()) {
        to = found;
      } else {
        problem(fmt::format("/{}: expected {}", key, expected));
      }
      return simdjson::SUCCESS;
    }
  }

  // The text of a list or an object, as in the line.
  simdjson::error_code raw(std::string_view key, ondemand::value& value, json_type wanted,
                           std::string_view& to) {
    json_type found;
    if (auto code = value.type().get(found)) return code;
    if (found != wanted) {
      problem(fmt::format("/{}: expected {}, found something else", key,
                          wanted == json_type::array ? "a list" : "an object"));
      return simdjson::SUCCESS;
    }
    if (wanted == json_type::array) {
      ondemand::array list;
      if (auto code = value.get_array().get(list)) return code;
      return list.raw_json().get(to);
    }
    ondemand::object object;
    if (auto code = value.get_object().get(object)) return code;
    return object.raw_json().get(to);
  }

  simdjson::error_code text(std::string_view key, ondemand::value& value, std::string& to) {
    std::string_view found;
    if (auto code = value.get_string().get(found)) {
      if (broken(code)) return code;
      problem(fmt::format("/{}: expected text, found something else", key));
    } else if (found.empty() || found.size() > kMaxText ||
               found.find('\0') != std::string_view::npos) {
      problem(fmt::format("/{}: expected 1 to {} bytes of text without NUL", key, kMaxText));
    } else {
      to = found;
    }
    return simdjson::SUCCESS;
  }

  simdjson::error_code id(ondemand::value& value) {
    std::string_view found;
    std::int64_t number = 0;
    ondemand::json_type type;
    if (auto code = value.type().get(type)) return code;
    if (type == ondemand::json_type::number && value.get_int64().get(number) == 0) {
      request_.id = std::to_string(number);
    } else if (type == ondemand::json_type::string) {
      if (auto code = value.get_string().get(found)) return code;
      if (found.size() > kMaxId) {
        problem(fmt::format("/id: expected at most {} bytes", kMaxId));
      } else {
        request_.id = nlohmann::json(found).dump();
      }
    } else if (type != ondemand::json_type::null) {
      problem("/id: expected text, a whole number or null");
    }
    return simdjson::SUCCESS;
  }

  simdjson::error_code op(ondemand::value& value) {
    std::string name;
    const auto code = text("op", value, name);
    if (code || name.empty()) return code;
    const auto row = std::ranges::find(request_ops(), name, &RequestOp::name);
    if (row == request_ops().end()) {
      std::vector<std::string_view> names;
      for (const RequestOp& known : request_ops()) names.push_back(known.name);
      problem(fmt::format("/op: expected one of {}, found {}", fmt::join(names, ", "),
                          in_quotes(name)));
    } else {
      row_ = &*row;
      request_.op = row->op;
    }
    return simdjson::SUCCESS;
  }

  // A name, or the graph itself.
  simdjson::error_code graph(ondemand::value& value) {
    ondemand::json_type type;
    if (auto code = value.type().get(type)) return code;
    if (type == ondemand::json_type::string) return text("graph", value, request_.graph);
    if (type != ondemand::json_type::object) {
      problem("/graph: expected the name of a graph, or a graph");
      return simdjson::SUCCESS;
    }
    ondemand::object object;
    if (auto code = value.get_object().get(object)) return code;
    return object.raw_json().get(request_.inline_graph);
  }

  simdjson::error_code rewrites(ondemand::value& value) {
    std::string wrong;
    const auto code = read_rewrites(value, request_.rewrites, wrong);
    if (!wrong.empty()) problem(std::move(wrong));
    return code;
  }

  simdjson::error_code strategy(ondemand::value& value) {
    std::string name;
    const auto code = text("strategy", value, name);
    if (code || name.empty()) return code;
    if (name == "ddp") request_.strategy = ParallelStrategy::kDdp;
    if (name == "fsdp") request_.strategy = ParallelStrategy::kFsdp;
    if (!request_.strategy) {
      problem(fmt::format("/strategy: expected ddp or fsdp, found {}", in_quotes(name)));
    }
    return simdjson::SUCCESS;
  }

  std::string& line_;
  Request& request_;
  const RequestOp* row_ = nullptr;
  std::vector<std::string> keys_;
  std::optional<Problem> first_;
};

}  // namespace

std::string_view op_name(const Request& request) {
  return std::ranges::find(request_ops(), request.op, &RequestOp::op)->name;
}

std::optional<Problem> parse_request(std::string& line, Request& request) {
  return LineReader(line, request).read();
}

}  // namespace perfmodel::serve
