#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "perfmodel/graph/detail/string_pool.hpp"

namespace perfmodel {

/// Puts pseudonyms in the place of what says who recorded a program, and where. One object for all
/// texts of a document: equal names get equal pseudonyms ("user-1", "host-2"), numbered as they
/// appear, so that they tell nothing and yet can be compared.
///
/// Taken for such:
/// - the name in a home folder (/home/NAME, /Users/NAME, C:\Users\NAME, ~NAME/), and from then on
///   that name as a whole word of letters and digits anywhere, unless everybody has it (root,
///   ubuntu, user, ...);
/// - mail addresses; IPv4, IPv6 and MAC addresses;
/// - host names: with a domain (a.b.com, x.local), of a cloud (ip-10-0-0-1), in front of the
///   process in the name of a profiler's file (HOST_123.456.pt.trace.json), after "host=",
///   "hostname:" and the like, and the names of this machine and of its user.
/// A guess either way: a harmless name may be replaced, and a name without any such mark is not
/// recognised. Secrets are masked by the readers (secrets.hpp).
class Anonymizer {
 public:
  /// Knows this machine's host name and its user.
  static Anonymizer of_this_machine();
  Anonymizer() = default;

  /// Learns whose names a text holds, so that texts that come before it lose them, too.
  void learn(std::string_view text);
  /// `text` with pseudonyms.
  std::string replaced(std::string_view text);
  /// Learns from all names of a pool, then replaces them. Two names that become one are told apart
  /// by a number.
  void replace_names(StringPool& names);

  std::size_t count() const { return count_; }  ///< how many texts changed

  /// Replaces in place.
  template <class... Texts>
  void replace(Texts&... texts) {
    ((texts = replaced(texts)), ...);
  }

 private:
  enum class Kind { kUser, kHost, kMail, kAddress };

  std::string pseudonym(Kind kind, std::string_view name);
  void know_word(Kind kind, std::string_view word);
  struct Found {
    std::size_t begin = 0, end = 0;  // where the name is; begin == end: none
    Kind kind = Kind::kUser;
  };
  static Found name_at(std::string_view text, std::size_t at);
  std::string words_replaced(std::string_view text) const;

  std::map<std::string, std::string, std::less<>> pseudonyms_;  // by kind and name
  std::map<std::string, std::string, std::less<>> words_;       // whole words, with pseudonyms
  std::size_t numbers_[4] = {};
  std::size_t count_ = 0;
};

}  // namespace perfmodel
