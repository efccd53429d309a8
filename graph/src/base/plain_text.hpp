#pragma once

#include <string>
#include <string_view>

namespace perfmodel {

/// Text for a terminal, a message or a report, whatever strangers put into it: one '?' stands for
/// every character that could do more than be read, and for every byte that is no UTF-8. These are
/// control characters (U+0000 to U+001F, U+007F to U+009F: escape sequences, line breaks),
/// separators of lines and paragraphs, marks of writing direction and characters without width
/// (U+061C, U+200B to U+200F, U+2028 to U+202E, U+2060 to U+2069, U+FEFF: one name passes for
/// another). Plain text stays as it is.
std::string plain_text(std::string_view text);

/// Whether `plain_text` leaves the text as it is.
bool is_plain_text(std::string_view text);

}  // namespace perfmodel
