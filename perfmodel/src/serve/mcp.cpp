#include "mcp.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>

#include "answers.hpp"
#include "base/number_text.hpp"
#include "perfmodel/version.hpp"
#include "request_fields.hpp"

namespace perfmodel::serve {
namespace {

// Codes of JSON-RPC 2.0.
constexpr int kParseError = -32700, kInvalidRequest = -32600, kNoMethod = -32601,
              kInvalidParams = -32602, kInternalError = -32603;
constexpr std::string_view kVersions[] = {"2025-06-18", "2025-03-26", "2024-11-05"};
constexpr std::size_t kLongestText = 4000;

constexpr const char* kInstructions =
    "Predicts time and memory of training steps on GPUs that need not be there. First `build` or "
    "`load` a graph, then ask `predict`, `explain`, `duration` or `optimize` about it by its name; "
    "`layout` and `layout_rank` know decoders by name. Times end in their unit; ranges hold in "
    "nine of ten cases.";

Json rpc_error(const Json& id, int code, std::string_view message) {
  return {{"jsonrpc", "2.0"}, {"id", id}, {"error", {{"code", code}, {"message", message}}}};
}

double number_at(const Json& json, const char* key) {
  const auto at = json.find(key);
  return at != json.end() && at->is_number() ? at->get<double>() : 0;
}

std::string warnings_text(const Json& result) {
  std::string text;
  const auto warnings = result.find("warnings");
  if (warnings == result.end() || !warnings->is_array()) return text;
  for (const Json& warning : *warnings) {
    text += "\nWarning: ";
    text += warning.get<std::string>();
  }
  return text;
}

// "Evidence: 82 % of kernel time is based on measurements of the board, 18 % on the data sheet
// alone."
std::string evidence_text(const Json& result) {
  const auto levels = result.find("kernel_us_by_knowledge");
  if (levels == result.end()) return "";
  double sum = 0;
  for (const auto& [name, us] : levels->items()) sum += us.get<double>();
  std::string text;
  for (const auto& [name, us] : levels->items()) {
    if (!(us.get<double>() > 0)) continue;
    const std::string share = percent(us.get<double>() / sum, 0);
    text += text.empty() ? "\nEvidence: " + share + " of kernel time is based on "
                         : ", " + share + " on ";
    text += name == "none" ? "the data sheet alone" : fmt::format("measurements of the {}", name);
  }
  return text.empty() ? text : text + ".";
}

std::string memory_text(double needed, double device, bool fits) {
  if (!(device > 0)) return "";
  return fmt::format("memory {:.1f} of {:.1f} GiB, {}", needed / (1 << 30), device / (1 << 30),
                     fits ? "fits" : "does not fit");
}

std::string prediction_brief(const Json& asked, const Json& result) {
  std::string text =
      fmt::format("{:.3f} ms per step on {} (in nine of ten cases {:.3f} to {:.3f} ms)",
                  number_at(result, "e2e_us") / 1e3, asked.value("gpu", ""),
                  number_at(result, "e2e_low_us") / 1e3, number_at(result, "e2e_high_us") / 1e3);
  if (const double rate = number_at(result, "samples_per_s"); rate > 0) {
    text += fmt::format(", {:.6g} samples/s on {} GPU(s)", rate, number_at(result, "gpus"));
  }
  text +=
      fmt::format(". The GPU is active for {:.3f} ms.", number_at(result, "gpu_active_us") / 1e3);
  const auto memory = result.find("memory");
  if (memory != result.end() && memory->is_object()) {  // a trace has none
    const std::string needed =
        memory_text(number_at(*memory, "needed_bytes"), number_at(*memory, "device_bytes"),
                    memory->value("fits", true));
    if (!needed.empty()) text += " With activations: " + needed + ".";
  }
  if (result.contains("explanation")) {
    text += '\n';
    text += result["explanation"].value("text", std::string());
  }
  return text + evidence_text(result) + warnings_text(result);
}

std::string duration_brief(const Json& result) {
  std::string text;
  for (const Json& row : result["rows"]) {
    text += fmt::format("{}{} x {}: ", text.empty() ? "" : "\n", number_at(row, "world"),
                        row.value("gpu", ""));
    if (row["error"].is_string()) {
      text += row["error"].get<std::string>();
      continue;
    }
    text += fmt::format("{:.6g} samples/s, step {:.3f} ms (in nine of ten cases {:.3f} to {:.3f})",
                        number_at(row, "samples_per_s"), number_at(row, "step_us") / 1e3,
                        number_at(row, "low_us") / 1e3, number_at(row, "high_us") / 1e3);
    const std::string memory = memory_text(number_at(row, "needed_bytes"),
                                           number_at(row, "device_bytes"), row.value("fits", true));
    if (!memory.empty()) text += ", " + memory;
    if (row["duration_s"].is_object()) {
      text += fmt::format(", {:.4g} h (one of ten cases takes more than {:.4g} h)",
                          number_at(row["duration_s"], "p50") / 3600,
                          number_at(row["duration_s"], "p90") / 3600);
    }
  }
  return text;
}

std::string layout_brief(const Json& layout) {
  return fmt::format(
      "{:.2f} ms per step (in nine of ten cases {:.2f} to {:.2f} ms), {:.6g} "
      "tokens/s per GPU, memory {:.1f} GB, {}: dp {} tp {} pp {} cp {} ep {}",
      number_at(layout, "predicted_step_ms"), number_at(layout, "low_ms"),
      number_at(layout, "high_ms"), number_at(layout, "tokens_per_s_per_gpu"),
      number_at(layout, "memory_gb"), layout.value("fits", true) ? "fits" : "does not fit",
      number_at(layout, "dp"), number_at(layout, "tp"), number_at(layout, "pp"),
      number_at(layout, "cp"), number_at(layout, "ep"));
}

// A short answer with units, ranges and evidence; of other operations the result itself.
std::string brief(const RequestOp& op, const Json& asked, const Json& result) {
  if (op.op == Op::kPredict || op.op == Op::kExplain) return prediction_brief(asked, result);
  if (op.op == Op::kDuration) return duration_brief(result);
  if (op.op == Op::kLayout) return layout_brief(result) + warnings_text(result);
  if (op.op == Op::kLayoutRank) {
    std::string text;
    for (const Json& layout : result["layouts"]) text += layout_brief(layout) + "\n";
    return text + warnings_text(result);
  }
  return json_line(result);
}

const RequestOp* find_tool(const std::string& name) {
  const auto op = std::ranges::find(request_ops(), name, &RequestOp::name);
  return op == request_ops().end() || op->help.empty() ? nullptr : &*op;
}

Json tool_list() {
  Json tools = Json::array();
  for (const RequestOp& op : request_ops()) {
    if (op.help.empty()) continue;
    tools.push_back(
        {{"name", op.name}, {"description", op.help}, {"inputSchema", request_schema(op)}});
  }
  return {{"tools", std::move(tools)}};
}

std::string cut_text(std::string text) {
  if (text.size() <= kLongestText) return text;
  std::size_t end = kLongestText;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + " ... (the whole is in structuredContent)";
}

Json tool_answer(Service& service, const RequestOp& op, const Json& asked) {
  Json request = {{"id", nullptr}, {"op", op.name}};
  request.update(asked);
  const Json answer = Json::parse(service.answer(json_line(request), Caller{.any_file = true}),
                                  nullptr, /*allow_exceptions=*/false);
  if (!answer.is_object() || !answer.contains("result")) {
    const Json error = answer.is_object() ? answer.value("error", Json::object()) : Json::object();
    const std::string text =
        error.value("code", "internal") + ": " + error.value("message", "no answer");
    return {{"content", {{{"type", "text"}, {"text", text}}}}, {"isError", true}};
  }
  const Json& result = answer["result"];
  return {{"content", {{{"type", "text"}, {"text", cut_text(brief(op, asked, result))}}}},
          {"structuredContent", result},
          {"isError", false}};
}

Json initialized(const Json& params) {
  const Json version = params.value("protocolVersion", Json());
  const std::string asked = version.is_string() ? version.get<std::string>() : "";
  const auto known = std::ranges::find(kVersions, asked);
  return {{"protocolVersion", known == std::end(kVersions) ? kVersions[0] : *known},
          {"capabilities", {{"tools", {{"listChanged", false}}}}},
          {"serverInfo", {{"name", "perfpredict"}, {"version", program_version()}}},
          {"instructions", kInstructions}};
}

Json call_answer(Service& service, const Json& id, const Json& params) {
  if (!params.contains("name") || !params["name"].is_string()) {
    return rpc_error(id, kInvalidParams, "expected the name of a tool");
  }
  const auto name = params["name"].get<std::string>();
  const RequestOp* op = find_tool(name);
  if (!op) return rpc_error(id, kInvalidParams, "expected a tool of tools/list, found " + name);
  Json arguments = params.value("arguments", Json::object());
  if (arguments.is_null()) arguments = Json::object();
  if (!arguments.is_object()) return rpc_error(id, kInvalidParams, "expected arguments by name");
  for (const char* key : {"id", "op"}) {  // this program's own
    if (arguments.contains(key)) {
      return rpc_error(id, kInvalidParams, fmt::format("/{}: unknown key", key));
    }
  }
  return {{"jsonrpc", "2.0"}, {"id", id}, {"result", tool_answer(service, *op, arguments)}};
}

// Null: a notification or an answer, which gets none.
Json answer_message(Service& service, const Json& message) {
  if (!message.is_object()) return rpc_error(nullptr, kInvalidRequest, "expected an object");
  const bool answers = message.contains("result") || message.contains("error");
  if (answers && !message.contains("method")) return nullptr;
  const Json id = message.value("id", Json());
  if (message.value("jsonrpc", Json()) != "2.0" || !message.value("method", Json()).is_string()) {
    return rpc_error(id.is_structured() ? Json() : id, kInvalidRequest,
                     "expected a request of JSON-RPC 2.0");
  }
  if (!message.contains("id")) return nullptr;
  if (!id.is_string() && !id.is_number_integer()) {
    return rpc_error(nullptr, kInvalidRequest, "/id: expected text or a whole number");
  }
  const auto method = message["method"].get<std::string>();
  const Json params = message.value("params", Json::object());
  if (!params.is_object()) return rpc_error(id, kInvalidParams, "expected parameters by name");
  if (method == "tools/call") return call_answer(service, id, params);
  Json result;
  if (method == "initialize") {
    result = initialized(params);
  } else if (method == "ping") {
    result = Json::object();
  } else if (method == "tools/list") {
    result = tool_list();
  } else {
    return rpc_error(id, kNoMethod,
                     "expected initialize, ping, tools/list or tools/call, found " + method);
  }
  return {{"jsonrpc", "2.0"}, {"id", id}, {"result", std::move(result)}};
}

// False: the input ended. What is beyond `most` bytes of a line is skipped.
bool read_line(std::string& line, std::size_t most, bool& too_long) {
  line.clear();
  too_long = false;
  int byte = std::getc(stdin);
  if (byte == EOF) return false;
  for (; byte != EOF && byte != '\n'; byte = std::getc(stdin)) {
    if (line.size() < most) {
      line.push_back(static_cast<char>(byte));
    } else {
      too_long = true;
    }
  }
  return true;
}

std::string answer_of(Service& service, const std::string& message) {
  constexpr int kDeepest = 1000;  // copies and texts of values recurse
  bool too_deep = false;
  const auto look = [&](int depth, Json::parse_event_t, Json&) {
    too_deep |= depth > kDeepest;
    return !too_deep;
  };
  const Json json = Json::parse(message, look, /*allow_exceptions=*/false);
  if (too_deep) {
    return json_line(
        rpc_error(nullptr, kInvalidRequest,
                  fmt::format("expected at most {} brackets within brackets", kDeepest)));
  }
  if (json.is_discarded()) return json_line(rpc_error(nullptr, kParseError, "expected JSON"));
  if (!json.is_array()) {
    const Json answer = answer_message(service, json);
    return answer.is_null() ? "" : json_line(answer);
  }
  if (json.empty()) return json_line(rpc_error(nullptr, kInvalidRequest, "expected requests"));
  Json answers = Json::array();
  for (const Json& one : json) {
    if (Json answer = answer_message(service, one); !answer.is_null()) {
      answers.push_back(std::move(answer));
    }
  }
  return answers.empty() ? "" : json_line(answers);
}

}  // namespace

std::string answer_mcp(Service& service, const std::string& message) {
  try {
    return answer_of(service, message);
  } catch (const std::exception& error) {
    return json_line(rpc_error(nullptr, kInternalError, error.what()));
  }
}

Result<void> serve_mcp(Service& service, std::size_t max_request) {
  std::string line;
  for (bool too_long = false; read_line(line, max_request, too_long);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    std::string answer =
        too_long
            ? json_line(rpc_error(nullptr, kInvalidRequest,
                                  fmt::format("expected a line of at most {} bytes", max_request)))
            : answer_mcp(service, line);
    if (answer.empty()) continue;
    answer += '\n';
    if (std::fwrite(answer.data(), 1, answer.size(), stdout) != answer.size() ||
        std::fflush(stdout) != 0) {
      return fail(ErrorCode::kIo, "expected a writable standard output, found one that is not");
    }
  }
  return {};
}

}  // namespace perfmodel::serve
