#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "descriptor.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel::serve {

/// A file with one line of JSON per answered request, without what was asked: texts of clients may
/// hold what is theirs. Thread-safe.
class RequestLog {
 public:
  struct Entry {
    std::string peer;       ///< "user 1000"
    std::string_view op;    ///< empty: it could not be read
    std::string code;       ///< why it was refused; empty: it was not
    double took_us = 0;     ///< from arrival to answer
    std::size_t bytes = 0;  ///< length of the answer
  };

  /// Appends to the file, made with mode 0600. Error: it cannot be opened.
  Result<void> open(const std::filesystem::path& file);
  /// Writes a line, in one piece, if a file is open.
  void add(const Entry& entry) noexcept;
  std::uint64_t lost() const { return lost_; }  ///< lines that could not be written

 private:
  std::unique_ptr<Descriptor> file_;
  std::atomic<std::uint64_t> lost_ = 0;
};

}  // namespace perfmodel::serve
