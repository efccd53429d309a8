#include "request.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <simdjson.h>

#include <algorithm>
#include <new>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/secrets.hpp"
#include "base/size_limits.hpp"

namespace perfmodel::serve {
namespace {

namespace ondemand = simdjson::ondemand;
using ondemand::json_type;

constexpr std::size_t kMaxId = 256, kMaxText = 4096;
constexpr std::int64_t kMaxSize = std::int64_t{1} << 40;
constexpr std::int64_t kMostLayouts = 1000;

// What a layout is asked about, whether one is named or searched for.
std::vector<std::string_view> layout_keys() {
  std::vector<std::string_view> keys = {"gpu", "topology", "host_scale", "model"};
  for (const LayoutField& field : layout_fields()) keys.push_back(field.name);
  return keys;
}
std::vector<std::string_view> layout_rank_keys() {
  std::vector<std::string_view> keys = layout_keys();
  keys.push_back("top");
  return keys;
}

struct OpRow {
  std::string_view name;
  Op op;
  std::vector<std::string_view> keys, needed;
};
const std::vector<OpRow>& ops() {
  static const std::vector<OpRow> rows = {
      {"ping", Op::kPing, {}, {}},
      {"gpus", Op::kGpus, {}, {}},
      {"stats", Op::kStats, {}, {}},
      {"health", Op::kHealth, {}, {}},
      {"load", Op::kLoad, {"name", "file", "graph"}, {"name"}},
      {"build",
       Op::kBuild,
       {"name", "family", "preset", "batch", "sequence", "layers", "optimizer"},
       {"name", "family"}},
      {"unload", Op::kUnload, {"name"}, {"name"}},
      {"predict",
       Op::kPredict,
       {"graph", "gpu", "batch", "sequence", "world", "topology", "strategy", "interference",
        "host_scale", "device_scale", "keep_ops"},
       {"graph", "gpu"}},
      {"explain",
       Op::kExplain,
       {"graph", "gpu", "batch", "sequence", "world", "topology", "strategy", "interference",
        "host_scale", "device_scale"},
       {"graph", "gpu"}},
      {"match_step",
       Op::kMatchStep,
       {"graph", "gpu", "batch", "sequence", "world", "topology", "strategy", "interference",
        "measured_us"},
       {"graph", "gpu", "measured_us"}},
      {"layout", Op::kLayout, layout_keys(), {"gpu", "global_batch"}},
      {"layout_rank", Op::kLayoutRank, layout_rank_keys(), {"gpu", "global_batch", "world"}},
      {"optimize",
       Op::kOptimize,
       {"graph", "gpu", "world", "topology", "host_scale", "device_scale", "interference", "allow",
        "objective", "memory_limit_gb", "time_budget_s"},
       {"graph", "gpu"}},
      {"ask", Op::kAsk, {"command", "arguments", "options", "files", "name"}, {"command"}}};
  return rows;
}

Problem bad(std::string message) { return {"bad_request", std::move(message)}; }

// Kept short: what strangers send is not repeated at length.
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

// Which keys are there twice, lacking or unknown to the operation, and what else does not fit.
std::optional<Problem> check_keys(const OpRow& row, std::vector<std::string> keys,
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
  if (request.strategy && request.world == 0) return bad("/world: expected one with a strategy");
  return std::nullopt;
}

// A layout takes over keys that graphs have too.
void share_with_layout(Request& request) {
  LayoutAsk& layout = request.layout;
  if (request.model.layers > 0) layout.layers = request.model.layers;
  if (request.model.sequence > 0) layout.sequence = request.model.sequence;
  layout.optimizer = request.model.optimizer;
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
      return bad("expected one JSON object, found more behind it");
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

  // What is wrong with a value is remembered; only broken JSON ends the reading.
  simdjson::error_code member(const std::string& key, ondemand::value& value) {
    if (key == "id") return id(value);
    if (key == "op") return op(value);
    if (key == "name") return text(key, value, request_.name);
    if (key == "file") return text(key, value, request_.file);
    if (key == "graph") return graph(value);
    if (key == "gpu") return text(key, value, request_.gpu);
    if (key == "topology") return text(key, value, request_.topology);
    if (key == "family") return text(key, value, request_.model.family);
    if (key == "preset") return text(key, value, request_.model.preset);
    if (key == "optimizer") return text(key, value, request_.model.optimizer);
    if (key == "batch") return integer(key, value, kMaxSize, request_.model.batch);
    if (key == "sequence") return integer(key, value, kMaxSize, request_.model.sequence);
    if (key == "layers") return integer(key, value, kMostLayers, request_.model.layers);
    if (key == "world") return integer(key, value, kMostJobRanks, request_.world);
    if (key == "strategy") return strategy(value);
    if (key == "interference") return factor(key, value, request_.interference);
    if (key == "host_scale") return factor(key, value, request_.host_scale);
    if (key == "device_scale") return factor(key, value, request_.device_scale);
    if (key == "measured_us") return factor(key, value, request_.measured_us);
    if (key == "allow") return text(key, value, request_.allow);
    if (key == "objective") return text(key, value, request_.objective);
    if (key == "memory_limit_gb") return factor(key, value, request_.memory_limit_gb);
    if (key == "time_budget_s") return factor(key, value, request_.time_budget_s);
    if (key == "model") return text(key, value, request_.layout.model);
    if (const LayoutField* field = find_layout_field(key)) {
      return std::visit([&](auto member) { return take(key, value, request_.layout.*member); },
                        field->member);
    }
    if (key == "command") return text(key, value, request_.asked.command);
    if (key == "arguments") return raw(key, value, json_type::array, request_.asked.arguments);
    if (key == "options") return raw(key, value, json_type::object, request_.asked.options);
    if (key == "files") return raw(key, value, json_type::object, request_.asked.files);
    if (key == "top") return integer(key, value, kMostLayouts, request_.top);
    if (key == "keep_ops") {
      if (value.get_bool().get(request_.keep_ops)) problem("/keep_ops: expected true or false");
      return simdjson::SUCCESS;
    }
    problem(fmt::format("expected keys that the protocol knows, found {}", in_quotes(key)));
    return simdjson::SUCCESS;
  }

  simdjson::error_code take(std::string_view key, ondemand::value& value,
                            std::optional<std::int64_t>& to) {
    return integer(key, value, kMaxSize, to);
  }
  simdjson::error_code take(std::string_view key, ondemand::value& value, std::string& to) {
    return text(key, value, to);
  }
  simdjson::error_code take(std::string_view key, ondemand::value& value, std::optional<bool>& to) {
    return flag(key, value, to);
  }
  simdjson::error_code take(std::string_view key, ondemand::value& value,
                            std::optional<double>& to) {
    return amount(key, value, to);
  }
  simdjson::error_code take(std::string_view key, ondemand::value& value, double& to) {
    return share(key, value, to);
  }

  simdjson::error_code flag(std::string_view key, ondemand::value& value, std::optional<bool>& to) {
    bool found = false;
    if (value.get_bool().get(found)) {
      problem(fmt::format("/{}: expected true or false", key));
    } else {
      to = found;
    }
    return simdjson::SUCCESS;
  }

  // Bounded by what it is for, which the layout's checks know.
  simdjson::error_code amount(std::string_view key, ondemand::value& value,
                              std::optional<double>& to) {
    double found = 0;
    if (value.get_double().get(found)) {
      problem(fmt::format("/{}: expected a number", key));
    } else {
      to = found;
    }
    return simdjson::SUCCESS;
  }

  // The text of a list or an object, as it stands in the line.
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

  simdjson::error_code share(std::string_view key, ondemand::value& value, double& to) {
    double found = 0;
    if (value.get_double().get(found) || !(found >= 0 && found < 1)) {
      problem(fmt::format("/{}: expected a number of at least 0, below 1", key));
    } else {
      to = found;
    }
    return simdjson::SUCCESS;
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

  template <class Count>
  simdjson::error_code integer(std::string_view key, ondemand::value& value, std::int64_t most,
                               Count& to) {
    std::int64_t found = 0;
    if (value.get_int64().get(found) || found < 1 || found > most) {
      problem(fmt::format("/{}: expected a whole number from 1 to {}", key, most));
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
    const auto row = std::ranges::find(ops(), name, &OpRow::name);
    if (row == ops().end()) {
      std::vector<std::string_view> names;
      for (const OpRow& known : ops()) names.push_back(known.name);
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

  simdjson::error_code factor(std::string_view key, ondemand::value& value, double& to) {
    double found = 0;
    if (value.get_double().get(found) || !(found > 0 && found <= 1e6)) {
      problem(fmt::format("/{}: expected a number above 0, at most 1000000", key));
    } else {
      to = found;
    }
    return simdjson::SUCCESS;
  }

  std::string& line_;
  Request& request_;
  const OpRow* row_ = nullptr;
  std::vector<std::string> keys_;
  std::optional<Problem> first_;
};

}  // namespace

std::optional<Problem> parse_request(std::string& line, Request& request) {
  return LineReader(line, request).read();
}

}  // namespace perfmodel::serve
