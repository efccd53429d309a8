#include "ask_command.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "base/secrets.hpp"

namespace perfmodel::serve {
namespace {

namespace fs = std::filesystem;

// Whether brackets are nested more than so deep. The walk over the values recurses.
bool nests_beyond(std::string_view text, int most) {
  int depth = 0;
  bool in_text = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\') {
      ++i;  // backslashes occur only in texts
    } else if (c == '"') {
      in_text = !in_text;
    } else if (!in_text && (c == '[' || c == '{')) {
      if (++depth > most) return true;
    } else if (!in_text && (c == ']' || c == '}')) {
      --depth;
    }
  }
  return false;
}

// Whether the line is JSON throughout is not known before.
Result<Json> parsed(std::string_view key, std::string_view text, Json empty) {
  constexpr int kMostNesting = 128;
  if (text.empty()) return empty;
  if (nests_beyond(text, kMostNesting)) {
    return decline(
        fmt::format("/{}: expected at most {} brackets within brackets", key, kMostNesting));
  }
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) {
    return decline(fmt::format("/{}: expected JSON, found none", key));
  }
  return json;
}

void add_words(const Json& value, std::vector<std::string>& words) {
  if (value.is_string()) words.push_back(value.get<std::string>());
  if (!value.is_structured()) return;
  for (const Json& item : value) add_words(item, words);
}

// Lists of files are parted by commas.
std::vector<std::string> parts_of(const std::string& word) {
  std::vector<std::string> parts = {word};
  for (std::size_t begin = 0; word.find(',') != std::string::npos && begin <= word.size();) {
    const std::size_t end = std::min(word.find(',', begin), word.size());
    parts.push_back(word.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

bool leaves_folder(const fs::path& file) {
  return file.is_absolute() || std::ranges::find(file, fs::path("..")) != file.end();
}

// Refuses the word in addition to the process's own limits: the answer does not tell whether a file
// exists elsewhere.
Result<void> check_word(const std::string& word, const Caller& caller) {
  if (caller.any_file || !leaves_folder(word)) return {};
  if (!caller.folder.empty()) {
    std::error_code failure;
    const fs::path folder = fs::canonical(caller.folder, failure);
    const fs::path file = failure ? fs::path() : fs::weakly_canonical(word, failure);
    const auto [end, ignored] = std::ranges::mismatch(folder, file);
    if (!failure && end == folder.end()) return {};
  }
  return decline(
      "expected names of graphs, of \"files\" of the request or of files below the allowed folder, "
      "found \"" +
      shown_text(word, 40) + '"');
}

Result<void> add_files(std::string_view text, CommandFolder& folder) {
  PERFMODEL_TRY(files, parsed("files", text, Json::object()));
  for (const auto& [name, content] : files->items()) {
    auto added = content.is_string() ? folder.add(name, content.get_ref<const std::string&>())
                                     : folder.add(name, json_line(content));
    if (!added) return added;
  }
  return {};
}

Result<void> add_graphs(const std::vector<std::string>& words, const FindGraph& find_graph,
                        CommandFolder& folder) {
  for (const std::string& word : words) {
    for (const std::string& name : parts_of(word)) {
      if (!is_file_name(name) || folder.has(name)) continue;
      const auto graph = find_graph(name);
      if (!graph) continue;
      PERFMODEL_TRY_TO(folder.add(name, graph->graph()));
    }
  }
  return {};
}

}  // namespace

Result<PreparedCommand> prepare_command(const Request& request, const Caller& caller,
                                        const FindGraph& find_graph, std::stop_token cancel) {
  PERFMODEL_TRY(options, parsed("options", request.options, Json::object()));
  PERFMODEL_TRY(arguments, parsed("arguments", request.arguments, Json::array()));
  std::vector<std::string> words;
  add_words(*arguments, words);
  add_words(*options, words);
  for (const std::string& word : words) PERFMODEL_TRY_TO(check_word(word, caller));
  PERFMODEL_TRY(folder, CommandFolder::make());
  PERFMODEL_TRY_TO(add_files(request.files, *folder));
  PERFMODEL_TRY_TO(add_graphs(words, find_graph, *folder));
  if (!request.name.empty()) {
    if (!is_file_name(request.name) || folder->has(request.name)) {
      return decline(
          "/name: expected the name of a graph to write, without a folder, that is none of the "
          "inputs'");
    }
    (*options)["output"] = request.name;
  }
  const Json words_of_request = {
      {"command", request.command}, {"arguments", *arguments}, {"options", *options}};
  CommandQuestion question{.request = json_line(words_of_request),
                           .folder = folder->path(),
                           .any_file = caller.any_file,
                           .files = caller.folder,
                           .cancel = std::move(cancel)};
  return PreparedCommand{std::move(*folder), std::move(question)};
}

namespace {

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t three = 0;
    for (std::size_t j = 0; j < 3; ++j) {
      three = three << 8 | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    }
    for (std::size_t j = 0; j < 4; ++j) {
      text += i + j <= bytes.size() ? kDigits[three >> (18 - 6 * j) & 63] : '=';
    }
  }
  return text;
}

Result<Json> read_output(const std::string& name, const CommandFolder& folder) {
  constexpr std::uintmax_t kMost = std::uintmax_t{64} << 20;
  const fs::path file = folder.path() / name;
  std::error_code failure;
  if (!is_file_name(name) || !folder.has(name) || fs::file_size(file, failure) > kMost || failure) {
    return decline("/outputs: expected a file of at most 64 MiB that the command writes, found \"" +
                   shown_text(name, 40) + '"');
  }
  std::ifstream in(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in) return fail(ErrorCode::kIo, "/outputs: expected a readable file, found none", name);
  if (simdjson::validate_utf8(text)) return Json(text);
  return Json{{"base64", base64(text)}};
}

}  // namespace

Result<Json> read_outputs(std::string_view names, const CommandFolder& folder) {
  PERFMODEL_TRY(list, parsed("outputs", names, Json::array()));
  Json outputs;
  for (const Json& name : *list) {
    if (!name.is_string()) return decline("/outputs: expected names of files");
    PERFMODEL_TRY(text, read_output(name.get<std::string>(), folder));
    outputs[name.get<std::string>()] = std::move(*text);
  }
  return outputs;
}

std::string command_result(const CommandAnswer& answer, const Json& graph, const Json& outputs) {
  const Json messages = answer.messages;
  std::string text = "{\"document\":" + answer.document;
  while (text.ends_with('\n')) text.pop_back();
  std::ranges::replace(text, '\n', ' ');  // only between values: in texts it is \n
  text += ",\"messages\":" + json_line(messages);
  if (!graph.is_null()) {
    text += ",\"graph\":" + json_line(graph);
  }
  if (!outputs.is_null()) text += ",\"outputs\":" + json_line(outputs);
  return text + '}';
}

}  // namespace perfmodel::serve
