#include "output.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/plain_text.hpp"
#include "base/secrets.hpp"
#include "data_hash.hpp"
#include "hosted_run.hpp"
#include "json/recording_json.hpp"
#include "perfmodel/version.hpp"

namespace perfmodel::cli {

namespace {

Result<void> keep_printed(HostedRun& host, std::string_view text) {
  if (host.most_bytes > 0 && host.printed.size() + text.size() > host.most_bytes) {
    return decline("expected an answer of at most " + std::to_string(host.most_bytes) +
                   " bytes, found one of " + std::to_string(host.printed.size() + text.size()));
  }
  host.printed += text;
  return {};
}

// Noted per thread, as a program may host several commands.
using NotedRecordings = std::vector<std::pair<std::string, Recording>>;
NotedRecordings& noted_recordings() {
  thread_local NotedRecordings noted;
  return noted;
}

}  // namespace

Json document(const Schema& schema, std::string_view program) {
  return {{"schema", schema.name},
          {"version", schema.version},
          {"minor_version", schema.minor_version},
          {"program",
           {{"name", program},
            {"version", program_version()},
            {"git", git_revision()},
            {"data", data_hash()}}}};
}

std::string to_text(const Json& document) {
  return document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<void> print(std::string_view text) {
  if (HostedRun* host = HostedRun::current()) return keep_printed(*host, text);
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) {
    return {};
  }
  return fail(ErrorCode::kIo, "expected a writable standard output, found one that is not");
}

Result<void> print_document(Json document) {
  if (!document.contains("recording")) {
    if (Json found = recordings_json(); !found.is_null()) document["recording"] = std::move(found);
  }
  return print(to_text(document));
}

Result<void> print_document(const Schema& schema, const Json& members) {
  Json whole = document(schema);
  whole.update(members);
  return print_document(std::move(whole));
}

void note_recording(const std::string& file, const Recording& recording) {
  noted_recordings().emplace_back(file, recording);
}

void forget_recordings() { noted_recordings().clear(); }

Json recordings_json() {
  const NotedRecordings& noted = noted_recordings();
  if (noted.empty()) return nullptr;
  Json findings = Json::array();
  for (const auto& [file, recording] : noted) {
    Json of_file = recording_json<Json>(recording);
    for (Json& finding : of_file["findings"]) {
      if (noted.size() > 1) finding["file"] = file;
      findings.push_back(std::move(finding));
    }
  }
  return {{"findings", std::move(findings)}};
}

Result<void> print_or_write(std::string_view text, const std::string& file) {
  return file.empty() ? print(text) : write_file(file, text);
}

Result<void> print_report(std::string_view text) {
  return print(std::string(text) + "\n  perfpredict " + version_text() + "\n");
}

void complain(std::string message) {
  for (char& c : message) {
    if (c == '\n' || c == '\r') c = ' ';  // CLI11 writes several lines
  }
  if (HostedRun* host = HostedRun::current()) {
    host->complaints.push_back(plain_text(message));
    return;
  }
  std::fprintf(stderr, "%s\n", plain_text(message).c_str());
}

void warn(std::string_view message) {
  complain("warning: " + shown_text(message, kLongestMessage));
}

bool progress_shown() { return !HostedRun::current() && isatty(STDERR_FILENO) != 0; }

bool bold_allowed() {
  if (HostedRun::current() || std::getenv("NO_COLOR") || !isatty(STDOUT_FILENO)) return false;
  const char* terminal = std::getenv("TERM");
  return terminal && std::strcmp(terminal, "dumb") != 0;
}

}  // namespace perfmodel::cli
