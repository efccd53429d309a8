#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/schema.hpp"
#include "fields/result_field.hpp"
#include "perfmodel/detail/output_file.hpp"
#include "perfmodel/graph/detail/recording.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel::cli {

using Json = OrderedJson;

/// Begins the JSON document of a command: with its schema and version, and the program that made
/// it.
Json document(const Schema& schema, std::string_view program = "perfpredict");

/// Text in UTF-8, whatever bytes the strings hold.
std::string to_text(const Json& document);

/// Writes to stdout; an error if it cannot be written (a full disk). Within a HostedRun, nothing
/// that follows leaves the process: it is kept there.
Result<void> print(std::string_view text);
/// With what the check of each trace that was read has found, under "recording".
Result<void> print_document(Json document);
/// With the members of an answer, as the library makes it.
Result<void> print_document(const Schema& schema, const Json& members);

/// Notes a trace that the command has read, for its document.
void note_recording(const std::string& file, const Recording& recording);
/// A command begins: nothing has been read.
void forget_recordings();
/// The notes: {"findings": [...]}, each with its file if there are several; null: no trace.
Json recordings_json();

/// Writes to a file; to stdout where none is named.
Result<void> print_or_write(std::string_view text, const std::string& file);

/// For readers: the last line names the program and its version.
Result<void> print_report(std::string_view text);

/// One problem is one line of plain text on stderr (graph/plain_text.hpp). All that the programs
/// say there of what they read passes through here.
void complain(std::string message);

/// "warning: ...", secrets masked.
void warn(std::string_view message);

/// True if stderr is a terminal of this program's.
bool progress_shown();

/// True if stdout is a terminal that takes bold print (and NO_COLOR is not set).
bool bold_allowed();

}  // namespace perfmodel::cli
