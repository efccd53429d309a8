#include <mpi.h>

#include <cstdint>
#include <mutex>

#include "module.hpp"

namespace perfmodel::mpi {
namespace {

constexpr int kQuestion = 1, kAnswer = 2;  // tags

// MPI's own error handler ends the job, so no call is asked for its outcome.
class MpiTeam final : public sweep::Team {
 public:
  MpiTeam() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  ~MpiTeam() override { MPI_Finalize(); }

  std::size_t rank() const override { return static_cast<std::size_t>(rank_); }
  std::size_t size() const override { return static_cast<std::size_t>(size_); }

  Words gather(std::uint64_t mine) override {
    Words all(size());
    MPI_Allgather(&mine, 1, MPI_UINT64_T, all.data(), 1, MPI_UINT64_T, MPI_COMM_WORLD);
    return all;
  }

  Words ask(std::span<const std::uint64_t> words) override {
    const std::lock_guard lock(asking_);
    send(0, kQuestion, words);
    MPI_Status status;
    MPI_Probe(0, kAnswer, MPI_COMM_WORLD, &status);
    return take(status);
  }

  std::optional<Message> receive() override {
    int there = 0;
    MPI_Status status;
    MPI_Iprobe(MPI_ANY_SOURCE, kQuestion, MPI_COMM_WORLD, &there, &status);
    if (!there) return std::nullopt;
    return Message{static_cast<std::size_t>(status.MPI_SOURCE), take(status)};
  }

  void answer(std::size_t rank, std::span<const std::uint64_t> words) override {
    send(static_cast<int>(rank), kAnswer, words);
  }

 private:
  static void send(int rank, int tag, std::span<const std::uint64_t> words) {
    MPI_Send(words.data(), static_cast<int>(words.size()), MPI_UINT64_T, rank, tag, MPI_COMM_WORLD);
  }

  static Words take(const MPI_Status& status) {
    int count = 0;
    MPI_Get_count(&status, MPI_UINT64_T, &count);
    Words words(static_cast<std::size_t>(count));
    MPI_Recv(words.data(), count, MPI_UINT64_T, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
    return words;
  }

  int rank_ = 0, size_ = 1;
  std::mutex asking_;
};

}  // namespace
}  // namespace perfmodel::mpi

extern "C" __attribute__((visibility("default"))) perfmodel::sweep::Team*
perfpredict_open_team_1() {
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
  if (provided < MPI_THREAD_SERIALIZED) {
    MPI_Finalize();
    return nullptr;
  }
  return new perfmodel::mpi::MpiTeam;
}
