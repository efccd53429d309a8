#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "perfmodel/graph/detail/string_pool.hpp"

namespace perfmodel {

/// Recordings may hold what was never meant to leave a machine: a label with a password, an
/// environment dumped into a string argument. Every reader passes the names, labels, strings and
/// messages that can reach an output through this function.
///
/// Returns the text up to where the first secret begins, with "[masked]" in place of the rest, or
/// nothing if there is none. Taken for secrets:
/// - the value of an assignment (`=` or `:`) to a name that ends in a word such as password(s),
///   passwd, pwd, token, secret(s), apiKey, api_key, accessKey, privateKey, secretKey,
///   credential(s), authorization, in any case, or in _PASS, in capitals (but not FORWARD_PASS or
///   BACKWARD_PASS); not true, false, null, none, and not a number to a name that ends in token;
/// - an environment dump: three or more assignments to names in capitals, or one to PATH, HOME,
///   USER, LOGNAME, HOSTNAME, LD_LIBRARY_PATH, LD_PRELOAD, PYTHONPATH, or to a name that begins
///   with AWS_, GOOGLE_, AZURE_, SLURM_, KUBERNETES_, GITHUB_ or SSH_; plain numbers do not count.
///   With `:` as in Python, JSON and YAML: the known names in quotes or before a blank, any others
///   in quotes or at the beginning of a line, with a value that begins like no number or list;
/// - what begins like a key of a known kind (AKIA..., ASIA..., AIza..., ghp_... and its like,
///   github_pat_..., glpat-..., npm_..., sk_live_..., sk_test_..., xox?-..., sk-..., hf_..., eyJ...
///   of a JSON web token, "Bearer ...") and goes on as long, and in the characters, as such a key
///   does: hf_bert_large_512.json is a file; "-----BEGIN ... PRIVATE KEY"; a password in a URL;
/// - 32 or more hexadecimal digits in a row, letters and digits among them, but not the signature
///   0d1d2d3d... of a Triton kernel;
/// - 40 or more characters of base64 in a row with capitals, small letters and at least 4 digits,
///   as mixed as a random text is and a path is not. Mangled C++ names ("_Z...") are none.
/// A guess either way: a harmless name may be masked, and a short secret without a name is not
/// recognised.
std::optional<std::string> mask_secrets(std::string_view text);

/// As much of a message, or of one part of it, as is printed.
inline constexpr std::size_t kLongestMessage = 2000;

/// `text` for a message: secrets masked, `plain_text`, at most `most` bytes and "..." for the rest.
std::string shown_text(std::string_view text, std::size_t most = 80);

/// Masks the names of a pool in place: "[masked]", "[masked 2]" ... replace the secrets. Returns
/// how many names changed.
std::size_t mask_secrets(StringPool& names);

/// The warning of a reader that masked `count` texts.
std::string masked_warning(std::size_t count);

}  // namespace perfmodel
