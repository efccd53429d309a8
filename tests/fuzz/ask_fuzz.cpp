// Requests of other programs, as Python and C make them: any JSON to perfmodel_ask, any command.
//
// An input is a request, or {"request": ..., "files": [TEXT or DOCUMENT, ...]} whose texts the
// request names "@0", "@1.csv", "@2.json"; "@out" is a file that may be written. No request names
// any other path: a fuzz target must neither read nor write other files.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "fuzz.hpp"
#include "perfmodel.h"

using namespace perfmodel;
using Json = nlohmann::ordered_json;

namespace {

constexpr std::size_t kMostFiles = 3;
constexpr std::int64_t kMostMilliseconds = 1000;

// Where nothing can be made: what a request writes under a relative name is an error.
class NowhereScope {
 public:
  NowhereScope() : back_(open(".", O_PATH | O_CLOEXEC)) {
    PERFMODEL_CHECK(back_ >= 0 && chdir("/proc/self/fdinfo") == 0);
  }
  ~NowhereScope() {
    if (fchdir(back_) != 0) std::abort();
    close(back_);
  }
  NowhereScope(const NowhereScope&) = delete;
  NowhereScope& operator=(const NowhereScope&) = delete;

 private:
  int back_;
};

bool is_path(std::string_view text) {
  const bool is_choice = text.find('/') == text.rfind('/') && std::ranges::all_of(text, [](char c) {
                           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '/';
                         });
  if (text.find('/') == text.npos) return text.find("..") != text.npos;
  return !is_choice || text.starts_with('/');  // "adam/fused" is none
}

bool names_path(const Json& request) {
  if (request.is_string()) return is_path(request.get_ref<const std::string&>());
  if (!request.is_structured()) return false;
  for (const auto& [key, value] : request.items()) {
    if ((request.is_object() && is_path(key)) || names_path(value)) return true;
  }
  return false;
}

// "@1.csv": the file; other texts stay.
void name_files(Json& value, const Json& files) {
  if (value.is_structured()) {
    for (Json& item : value) name_files(item, files);
  }
  if (!value.is_string()) return;
  const std::string text = value.get<std::string>();
  if (text == "@out" || text == "@out.html" || text == "@out.json") {
    value = "/dev/null";
  }
  if (text.size() < 2 || text[0] != '@' || text[1] < '0') return;
  const auto number = static_cast<std::size_t>(text[1] - '0');
  if (number >= std::min(files.size(), kMostFiles)) return;
  const std::string extension = text.substr(2);
  if (!extension.empty() && extension != ".csv" && extension != ".json") return;
  const Json& file = files[number];
  value =
      fuzz::file_with(file.is_string() ? file.get<std::string>()
                                       : file.dump(-1, ' ', false, Json::error_handler_t::replace),
                      extension, static_cast<int>(number))
          .string();
}

void check_answer(const perfmodel_answer* answer) {
  std::size_t size = 0;
  const char* text = perfmodel_answer_text(answer, &size);
  PERFMODEL_CHECK(text != nullptr && text[size] == '\0');
  PERFMODEL_CHECK(Json::accept(text, text + size));
  for (std::size_t i = 0; i < perfmodel_answer_message_count(answer); ++i) {
    fuzz::check_line(perfmodel_answer_message(answer, i));
  }
}

void ask(const std::string& request) {
  perfmodel_ask_options options = {};
  options.struct_size = sizeof options;
  options.timeout_ms = kMostMilliseconds;
  options.max_answer_bytes = std::size_t{8} << 20;
  perfmodel_place place = {};
  place.struct_size = sizeof place;
  perfmodel_error error = {};
  perfmodel_answer* answer = nullptr;
  const NowhereScope nowhere;
  const auto status =
      perfmodel_ask(request.data(), request.size(), &options, &answer, &place, &error);
  PERFMODEL_CHECK(status != PERFMODEL_ERROR_INTERNAL);
  PERFMODEL_CHECK((status == PERFMODEL_OK) == (answer != nullptr));
  if (answer) {
    check_answer(answer);
    perfmodel_answer_free(answer);
    return;
  }
  PERFMODEL_CHECK(error.message[0] != '\0');
  fuzz::check_line(error.message);
  fuzz::check_line(place.message);
  fuzz::check_line(place.pointer);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  setenv("PERFMODEL_DATA", fuzz::small_data_folder().c_str(), 1);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(fuzz::text_of(data, size));
  if (fuzz::too_deep(text)) {
    ask(text);  // is refused: it is read, never run
    return 0;
  }
  Json document = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded()) {
    ask(text);
    return 0;
  }
  const bool has_files = document.is_object() && document.contains("request");
  Json request = has_files ? document["request"] : document;
  if (names_path(request)) return 0;
  const Json files = has_files ? document.value("files", Json::array()) : Json::array();
  if (files.is_array()) name_files(request, files);
  ask(request.dump(-1, ' ', false, Json::error_handler_t::replace));
  return 0;
}
