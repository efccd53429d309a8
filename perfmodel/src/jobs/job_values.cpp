#include "job_values.hpp"

#include <fmt/format.h>

#include "base/decimal_number.hpp"
#include "base/secrets.hpp"
#include "perfmodel/detail/decoder_models.hpp"

namespace perfmodel {
namespace {

namespace fs = std::filesystem;

// "meta-llama/Meta-Llama-3.1-8B-Instruct" -> "Llama-3.1-8B"; "nemo...Llama3Config8B" -> "Llama38B".
std::string plain_model_name(std::string name) {
  name = name.substr(name.find_last_of('/') + 1);
  if (name.find("Config") != std::string::npos) name = name.substr(name.find_last_of('.') + 1);
  constexpr std::string_view kParts[] = {
      "Config", "Meta-", ".yaml", "-Instruct", "-instruct", "-Base", "-base", "-hf",       "-chat",
      "-Chat",  "-it",   "-pt",   "-v0.1",     "-v0.2",     "-v0.3", "_v0.1", "-Thinking", "-2507"};
  for (const std::string_view part : kParts) {
    if (const std::size_t at = name.find(part); at != std::string::npos)
      name.erase(at, part.size());
  }
  return name;
}

// Parts of two values of `offload`, in the order of its names.
std::string joined_offload(const std::string& one, const std::string& other) {
  std::string parts;
  const std::string both = one + "+" + other;
  const bool on_drives = both.find("optimizer-nvme") != std::string::npos;
  for (const std::string_view part :
       {on_drives ? "optimizer-nvme" : "optimizer", "parameters", "activations"}) {
    if (both.find(part) == std::string::npos) continue;
    if (!parts.empty()) parts += "+";
    parts += part;
  }
  return parts;
}

}  // namespace

std::string model_of_name(const std::string& name, const JobFormat& format,
                          const std::filesystem::path& folder) {
  const std::string plain = plain_model_name(name);
  for (const auto& [theirs, ours] : format.models) {
    if (theirs == plain || theirs == name) return ours;
  }
  std::error_code ignored;
  for (const fs::path& path : {fs::path(name), folder / name}) {
    if (fs::is_regular_file(path / "config.json", ignored)) return path.string();
    if (path.extension() == ".json" && fs::is_regular_file(path, ignored)) return path.string();
  }
  const auto found = find_decoder(plain);
  return found ? found->model.name : "";
}

void JobValues::set(const std::string& name, const JobLine& line) {
  const auto [at, is_new] = values_.emplace(name, line);
  if (is_new || at->second.as == line.as) return;
  if (name == "lora_on") {  // adapters on one feed-forward layer make it all
    at->second.as = "all";
    return;
  }
  if (name == "offload") {
    at->second.as = joined_offload(at->second.as, line.as);
    return;
  }
  if (name == "recompute_modules") {
    at->second.as += "+" + line.as;
    return;
  }
  fail_at(line, fmt::format("expected what {} says too, {} for {}, found {}", at->second.key,
                            at->second.as, name, line.as));
}

const JobLine* JobValues::find(const std::string& name) const {
  const auto at = values_.find(name);
  return at == values_.end() ? nullptr : &at->second;
}

std::string JobValues::text(const std::string& name) const {
  const JobLine* line = find(name);
  return line ? line->as : "";
}

std::optional<std::int64_t> JobValues::count(const std::string& name) {
  const JobLine* line = find(name);
  if (!line) return std::nullopt;
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  std::int64_t number = 0;
  if (read_decimal(line->as, number) && number >= 1 && number <= kMost) return number;
  fail_at(*line,
          fmt::format("expected a whole number of at least 1, found \"{}\"", shown_text(line->as)));
  return std::nullopt;
}

void JobValues::fail_at(const JobLine& line, std::string message) {
  if (error_) return;
  error_ = Error{.code = ErrorCode::kImpossible,
                 .message = (line.key.empty() ? line.field : line.key) + ": " + std::move(message),
                 .file = line.key.starts_with("--") || line.key == "MODEL" ? fs::path() : file_,
                 .line = line.line};
}

}  // namespace perfmodel
