#include "perfmodel/predictors/gpu.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <optional>
#include <vector>

#include "architecture_files.hpp"
#include "core/edit_distance.hpp"
#include "files/json_file.hpp"
#include "files/lower_case.hpp"

namespace perfmodel {
namespace {

namespace fs = std::filesystem;

// "; the nearest known are ...": at most three, and none where half of the letters differ.
std::string nearest_names(std::string_view wanted, std::span<const Gpu> gpus) {
  std::vector<std::pair<std::size_t, std::string>> scored;
  for (const Gpu& gpu : gpus) {
    std::size_t best =
        std::min(edit_distance(wanted, gpu.name), edit_distance(wanted, lower_case(gpu.title)));
    for (const std::string& alias : gpu.aliases) {
      best = std::min(best, edit_distance(wanted, lower_case(alias)));
    }
    if (gpu.name.starts_with(wanted)) best = 0;  // "a100" means one of the a100 boards
    if (best <= wanted.size() / 2) scored.emplace_back(best, gpu.name);
  }
  if (scored.empty())
    return fmt::format("; none of the {} known ones is like it (`gpus` lists them)", gpus.size());
  return "; the nearest known are " + nearest_three(std::move(scored));
}

// "NVIDIA A10-24Q", "GRID A100D-2-20C", "NVIDIA H100-1-10CME": a dash, digits, the kind of profile.
bool ends_in_vgpu_profile(std::string_view name) {
  if (name.ends_with("me")) name.remove_suffix(2);
  if (name.empty() || std::string_view("abcq").find(name.back()) == name.npos) return false;
  name.remove_suffix(1);
  const std::size_t number = name.find_last_not_of("0123456789");
  return number != name.npos && number + 1 < name.size() && name[number] == '-';
}

// "1g.5gb": how many slices of compute, and their memory.
bool has_mig_profile(std::string_view name) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  for (std::size_t at = name.find("g."); at != name.npos; at = name.find("g.", at + 1)) {
    if (at > 0 && is_digit(name[at - 1]) && at + 2 < name.size() && is_digit(name[at + 2])) {
      return true;
    }
  }
  return false;
}

// A virtual function is the whole board, passed through to a guest.
std::string_view without_virtual_function(std::string_view name) {
  for (const std::string_view ending : {" vf", "-vf", "_vf"}) {
    if (name.ends_with(ending)) return name.substr(0, name.size() - ending.size());
  }
  return name;
}

/// Words of a name in lower case, without its maker's.
std::vector<std::string> words_of(std::string_view name) {
  constexpr std::array<std::string_view, 5> kMakers = {"nvidia", "amd", "geforce", "tesla",
                                                       "instinct"};
  std::vector<std::string> words(1);
  for (const char c : lower_case(name)) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      words.back() += c;
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  std::erase_if(words, [&](const std::string& word) {
    return word.empty() || std::ranges::find(kMakers, word) != kMakers.end();
  });
  return words;
}

/// Whether `wanted` is `word` without the letter after its number: MI300 for MI300X.
bool is_short_for(std::string_view wanted, std::string_view word) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return word.size() == wanted.size() + 1 && word.starts_with(wanted) && !wanted.empty() &&
         is_digit(wanted.back()) && !is_digit(word.back());
}

using Words = std::vector<std::string>;

/// The words of a name that have to be left out so that the others, joined, are `wanted`.
std::optional<Words> left_out(std::string_view wanted, std::span<const std::string> words) {
  if (wanted.empty()) return Words(words.begin(), words.end());
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool ends = is_short_for(wanted, words[i]);
    if (!ends && !wanted.starts_with(words[i])) continue;
    const std::string_view after = ends ? std::string_view() : wanted.substr(words[i].size());
    auto rest = left_out(after, words.subspan(i + 1));
    if (!rest) continue;
    rest->insert(rest->begin(), words.begin(), words.begin() + static_cast<std::ptrdiff_t>(i));
    return rest;
  }
  return std::nullopt;
}

/// "a100", "4090", "t4" or "titan": the word without which a name names no board.
bool is_of_model(std::string_view word) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto digits = std::ranges::count_if(word, is_digit);
  const bool has_letter = digits < std::ssize(word);
  if (word.ends_with("gb") || word.starts_with("sxm")) return false;
  return word == "titan" || (digits > 0 && word.size() > 1 && (has_letter || digits > 2));
}

/// Words that tell no board from another: memory, form factor, and the brand of a bare number.
bool is_minor(std::string_view word, bool is_bare) {
  return word.ends_with("gb") || word.starts_with("sxm") || word == "oam" ||
         (is_bare && (word == "rtx" || word == "gtx"));
}

std::optional<Words> left_out_of_name(std::string_view wanted, std::string_view name) {
  const Words words = words_of(name);
  auto left = left_out(wanted, words);
  const auto models = std::ranges::count_if(words, is_of_model);
  if (!left || models == std::ranges::count_if(*left, is_of_model)) return std::nullopt;
  return left;
}

struct CalledBoard {
  std::size_t position = 0;  ///< among the GPUs
  Words left_out;
};

/// The boards with these words in their name, or in an alias.
std::vector<CalledBoard> boards_called(std::string_view name, std::span<const Gpu> gpus) {
  const auto is_of_names = [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view(" -_./").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!std::ranges::all_of(name, is_of_names)) return {};
  std::string wanted;
  for (const std::string& word : words_of(name)) wanted += word;
  std::vector<CalledBoard> found;
  for (std::size_t i = 0; !wanted.empty() && i < gpus.size(); ++i) {
    auto left = left_out_of_name(wanted, gpus[i].name);
    for (const std::string& alias : gpus[i].aliases) {
      if (!left) left = left_out_of_name(wanted, alias);
    }
    if (left) found.push_back({i, std::move(*left)});
  }
  return found;
}

std::string list_of(std::span<const CalledBoard> boards, std::span<const Gpu> gpus) {
  std::vector<std::string_view> names;
  for (const CalledBoard& board : boards) names.push_back(gpus[board.position].name);
  return fmt::format("{}", fmt::join(names, ", "));
}

/// The usual one, else the one whose name has fewest words more; null: several have.
const CalledBoard* meant_of(std::span<const CalledBoard> boards, std::span<const Gpu> gpus) {
  std::vector<const CalledBoard*> usual, shortest;
  for (const CalledBoard& board : boards) {
    if (gpus[board.position].usual) usual.push_back(&board);
    if (!shortest.empty() && board.left_out.size() < shortest.front()->left_out.size()) {
      shortest.clear();
    }
    if (shortest.empty() || board.left_out.size() == shortest.front()->left_out.size()) {
      shortest.push_back(&board);
    }
  }
  if (usual.size() == 1) return usual.front();
  return shortest.size() == 1 ? shortest.front() : nullptr;
}

}  // namespace

std::string_view why_not_a_board(std::string_view name) {
  const std::string wanted = lower_case(name);
  const auto has = [&](std::string_view word) { return wanted.find(word) != wanted.npos; };
  if (has_mig_profile(wanted) || has(" mig")) {
    return "a MIG slice, which has a share of a board's SMs, cache and bandwidth";
  }
  if (ends_in_vgpu_profile(wanted) || has("mxgpu")) {
    return "a vGPU, which has a share of a board's time or units";
  }
  if (has("laptop") || has("mobile")) {
    return "a laptop GPU, which has other units, clocks and memory than the desktop card of that "
           "name";
  }
  if (has("max-q")) {
    return "a Max-Q design, which has lower clocks and power than the card of that name";
  }
  return {};
}

Result<std::size_t> find_gpu(std::string_view name, std::span<const Gpu> gpus) {
  const std::string wanted = lower_case(name);
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    const Gpu& gpu = gpus[i];
    const bool matches = wanted == gpu.name || wanted == lower_case(gpu.title) ||
                         std::ranges::any_of(gpu.aliases, [&](const auto& alias) {
                           return lower_case(alias) == wanted;
                         });
    if (matches) return i;
  }
  if (const auto board = without_virtual_function(wanted); board != wanted) {
    if (const auto found = find_gpu(board, gpus)) return found;
  }
  const std::string_view reason = why_not_a_board(name);
  return fail(
      ErrorCode::kUnknownName,
      fmt::format("expected the name of a known GPU, found \"{}\"{}", name,
                  reason.empty() ? nearest_names(wanted, gpus) : fmt::format(", {}", reason)));
}

namespace {

struct CalledGpu {
  std::size_t position = 0;  ///< among the GPUs
  std::string note;          ///< why it is taken; empty: nothing else can be meant
};

/// The board that people mean by some words of its name, in their order: "4090", "A100 80GB",
/// "2080ti", "mi300" for MI300X. If several may be meant, or no board is called so, an error
/// that lists them, or the nearest ones.
Result<CalledGpu> find_called_gpu(std::string_view name, std::span<const Gpu> gpus) {
  const auto boards =
      why_not_a_board(name).empty() ? boards_called(name, gpus) : std::vector<CalledBoard>();
  if (boards.empty()) return Unexpected{find_gpu(name, gpus).error()};
  const CalledBoard* const meant = meant_of(boards, gpus);
  if (!meant) {
    return fail(ErrorCode::kUnknownName,
                fmt::format("expected the name of one GPU, found \"{}\", which fits {}", name,
                            list_of(boards, gpus)));
  }
  CalledGpu called{.position = meant->position, .note = {}};
  const Gpu& gpu = gpus[meant->position];
  const bool is_bare = words_of(name).size() == 1;
  if (boards.size() > 1) {
    called.note = fmt::format("\"{}\" fits {}; {} is taken{}", name, list_of(boards, gpus),
                              gpu.name, gpu.usual ? ", the usual one" : "");
  } else if (!std::ranges::all_of(meant->left_out,
                                  [&](const auto& word) { return is_minor(word, is_bare); })) {
    called.note =
        fmt::format("\"{}\" is taken as {}, the only known board with these words", name, gpu.name);
  }
  return called;
}

/// A board by some words of its name.
Result<Gpu> find_called(std::string_view name, const fs::path& folder) {
  PERFMODEL_TRY(gpus, read_gpus(folder));
  PERFMODEL_TRY(called, find_called_gpu(name, *gpus));
  Gpu found = std::move((*gpus)[called->position]);
  found.taken_for = std::move(called->note);
  return found;
}

// The file that a name stands for, if there is one.
std::optional<fs::path> file_of(std::string_view name, const fs::path& folder) {
  const std::string wanted = lower_case(name);
  if (!is_plain_name(wanted)) return std::nullopt;  // else it may lead out of the folder
  std::error_code ignored;
  fs::path file = folder / (wanted + ".json");
  if (!fs::is_regular_file(file, ignored)) return std::nullopt;
  return file;
}

// The only GPU whose file holds the name in quotes, as its alias; nothing if several do. The other
// files are not parsed.
std::optional<Gpu> find_in_texts(std::string_view name, const fs::path& folder) {
  const auto files = json_files(folder, "GPU files");
  const std::string quoted = fmt::format("\"{}\"", lower_case(name));
  std::optional<fs::path> only;
  for (std::size_t i = 0; files && i < files->size(); ++i) {
    const auto text = read_json_text((*files)[i], "GPU file");
    if (!text) return std::nullopt;
    if (lower_case(*text).find(quoted) == std::string::npos) continue;
    if (only) return std::nullopt;
    only = (*files)[i];
  }
  if (!only) return std::nullopt;
  const auto gpu = read_gpu(*only, architectures_beside(folder));
  return gpu && find_gpu(name, {&*gpu, 1}) ? std::optional(*gpu) : std::nullopt;
}

}  // namespace

Result<Gpu> find_gpu(std::string_view name, const fs::path& folder) {
  const fs::path architectures = architectures_beside(folder);
  if (const auto file = file_of(name, folder)) return read_gpu(*file, architectures);
  const fs::path path{std::string(name)};
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored)) return read_gpu(path, architectures);
  if (path.extension() == ".json") return read_gpu(path);  // says that it cannot be opened
  auto found = find_known_gpu(name, folder);
  if (!found && found.error().code == ErrorCode::kUnknownName) found = find_called(name, folder);
  if (!found && found.error().code == ErrorCode::kUnknownName) {
    found.error().message += fmt::format(
        "; a file (.json) is taken, too: docs/extending.md says how to write one, from a copy of "
        "one in {}",
        folder.string());
  }
  return found;
}

Result<Gpu> find_known_gpu(std::string_view name, const fs::path& folder) {
  if (const auto file = file_of(name, folder)) {
    return read_gpu(*file, architectures_beside(folder));
  }
  if (auto gpu = find_in_texts(name, folder)) return std::move(*gpu);
  PERFMODEL_TRY(gpus, read_gpus(folder));
  PERFMODEL_TRY(found, find_gpu(name, *gpus));
  return std::move((*gpus)[*found]);
}

}  // namespace perfmodel
