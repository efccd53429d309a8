// Changes inputs that are JSON as documents: bytes changed at random are hardly ever JSON again,
// and then only the parser is tried. Documents with graphs are mostly changed as graphs.
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "fuzz.hpp"
#include "graph_changes.hpp"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

namespace {

using Json = nlohmann::ordered_json;

class DocumentMutator {
 public:
  explicit DocumentMutator(unsigned seed) : random_(seed) {}

  void change(Json& document) {
    if (below(4) && perfmodel::fuzz::change_graph(document, random_)) return;
    std::vector<Json*> values = {&document};
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!values[i]->is_structured()) continue;
      for (Json& inner : *values[i]) values.push_back(&inner);
    }
    Json& value = *values[below(values.size())];
    switch (below(8)) {
      case 0:
      case 1:
        value = odd_value();
        break;
      case 2:
        value = Json(*values[below(values.size())]);
        break;
      case 3:
        remove_one(value);
        break;
      case 4:
        repeat_one(value);
        break;
      case 5:
        value = below(2) ? Json::array({Json(value)}) : Json{{"a", Json(value)}};
        break;
      case 6:
        rename_one(value, *values[below(values.size())]);
        break;
      default:
        nudge(value);
    }
  }

 private:
  std::size_t below(std::size_t count) { return random_() % count; }

  Json odd_value() {
    static const Json values = {0,
                                -1,
                                1,
                                2,
                                64,
                                65536,
                                std::int64_t{1} << 31,
                                -(std::int64_t{1} << 31) - 1,
                                std::int64_t{1} << 53,
                                std::numeric_limits<std::int64_t>::max(),
                                std::numeric_limits<std::int64_t>::min(),
                                std::numeric_limits<std::uint64_t>::max(),
                                -0.0,
                                0.5,
                                1e-320,
                                1e17,
                                1e308,
                                -1e308,
                                "",
                                "a",
                                "1",
                                "a/b~c",
                                "two\nlines\x1b[31m",
                                std::string(300, 'n'),
                                nullptr,
                                true,
                                false,
                                Json::array(),
                                Json::object()};
    return values[below(values.size())];
  }

  void remove_one(Json& value) {
    if (!value.is_structured() || value.empty()) return;
    value.erase(std::next(value.begin(), static_cast<std::ptrdiff_t>(below(value.size()))));
  }

  void repeat_one(Json& value) {
    if (!value.is_array() || value.empty()) return;
    const Json copy = value[below(value.size())];
    for (std::size_t times = 1 + below(4); times > 0; --times) value.push_back(copy);
  }

  // Gives a member the name or text of another one.
  void rename_one(Json& value, const Json& other) {
    if (!value.is_object() || value.empty()) return;
    const auto member = std::next(value.begin(), static_cast<std::ptrdiff_t>(below(value.size())));
    const Json moved = member.value();
    const std::string name = other.is_string() ? other.get<std::string>() : "x";
    value.erase(member);  // perhaps with `other`
    value[name] = moved;
  }

  void nudge(Json& value) {
    if (value.is_number_integer()) {
      const auto number = static_cast<std::uint64_t>(value.get<std::int64_t>());
      value = static_cast<std::int64_t>(below(2) ? number + 1 - 2 * below(2) : number << below(40));
    } else if (value.is_number_float()) {
      value = value.get<double>() * (below(2) ? -1 : 1e9);
    } else if (value.is_string()) {
      auto& text = value.get_ref<std::string&>();
      text.insert(below(text.size() + 1), 1, static_cast<char>(below(128)));
    }
  }

  std::minstd_rand random_;
};

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t most, unsigned seed) {
  if (seed % 3 == 0 || perfmodel::fuzz::too_deep(perfmodel::fuzz::text_of(data, size))) {
    return LLVMFuzzerMutate(data, size, most);
  }
  Json document = Json::parse(data, data + size, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded()) return LLVMFuzzerMutate(data, size, most);
  DocumentMutator(seed).change(document);
  const std::string text = document.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > most) return LLVMFuzzerMutate(data, size, most);
  std::copy(text.begin(), text.end(), data);
  return text.size();
}
