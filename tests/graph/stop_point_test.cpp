// Work that somebody ends from outside.
#include "base/stop_point.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <new>
#include <stop_token>

namespace perfmodel {
namespace {

using namespace std::chrono_literals;

TEST(StopPoint, DoesNothingWhereNobodyMayStopTheWork) {
  EXPECT_EQ(stop_rules(), nullptr);
  EXPECT_FALSE(stop_asked());
  EXPECT_NO_THROW(stop_point());
}

TEST(StopPoint, ThrowsOnceTheCallerHasAskedAndWhileTheScopeLives) {
  std::stop_source source;
  const StopRules rules{.token = source.get_token(), .deadline = {}};
  {
    const StopScope scope(&rules);
    EXPECT_NO_THROW(stop_point());
    source.request_stop();
    EXPECT_THROW(stop_point(), Stopped);
    {
      const StopScope nobody(nullptr);
      EXPECT_NO_THROW(stop_point());
    }
    EXPECT_TRUE(stop_asked());
  }
  EXPECT_NO_THROW(stop_point());
}

TEST(StopPoint, ThrowsOnceTheTimeIsOver) {
  const auto now = std::chrono::steady_clock::now();
  const StopRules later{.token = {}, .deadline = now + 1h}, over{.token = {}, .deadline = now};
  const StopScope long_scope(&later);
  EXPECT_NO_THROW(stop_point());
  const StopScope scope(&over);
  EXPECT_THROW(stop_point(), Stopped);
}

TEST(StopPoint, HoldsForTheThreadsOfTheWork) {
  std::stop_source source;
  const StopRules rules{.token = source.get_token(), .deadline = {}};
  const StopScope scope(&rules);
  std::atomic<int> begun = 0;
  EXPECT_THROW(work_in_threads(4,
                               [&] {
                                 if (++begun == 4) source.request_stop();
                                 for (;;) stop_point();
                               }),
               Stopped);
  EXPECT_EQ(begun, 4);
}

TEST(StopPoint, ExceptionsComeOutOfThreads) {
  std::atomic<int> done = 0;
  EXPECT_THROW(work_in_threads(3,
                               [&] {
                                 if (++done == 2) throw std::bad_alloc();
                               }),
               std::bad_alloc);
  EXPECT_EQ(done, 3);
  work_in_threads(1, [&] { ++done; });
  EXPECT_EQ(done, 4);
}

}  // namespace
}  // namespace perfmodel
