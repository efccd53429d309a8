#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace perfmodel::sweep {

/// The processes of one sweep that can talk to each other: ranks 0 to size() - 1. Rank 0 hands out
/// work, the others ask for it. A process that fails in here takes all others down: no call returns
/// an error.
class Team {
 public:
  using Words = std::vector<std::uint64_t>;
  struct Message {
    std::size_t rank = 0;
    Words words;
  };

  virtual ~Team() = default;  ///< waits for all ranks
  virtual std::size_t rank() const = 0;
  virtual std::size_t size() const = 0;

  /// Called by all ranks together: returns the word that each gave, by rank.
  virtual Words gather(std::uint64_t mine) = 0;

  /// Called by ranks above 0, from any thread: sends words to rank 0 and waits for its answer.
  virtual Words ask(std::span<const std::uint64_t> words) = 0;

  /// Called by rank 0, from the thread that made the team: returns a question, if there is one.
  /// Each question gets one answer.
  virtual std::optional<Message> receive() = 0;
  virtual void answer(std::size_t rank, std::span<const std::uint64_t> words) = 0;
};

}  // namespace perfmodel::sweep
