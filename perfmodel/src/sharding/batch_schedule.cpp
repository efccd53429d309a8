#include "batch_schedule.hpp"

#include <algorithm>
#include <initializer_list>

namespace perfmodel::sharding {
namespace {

/// A part on one rank, and the part that it waited for: the one that ended last before it, even if
/// the host came later still.
struct PartSpan {
  double start_us = 0, end_us = 0;
  BatchPart before = BatchPart::kCount;  ///< kCount: none
  std::size_t before_rank = 0;
  double before_us = 0;  ///< when that one ended
};

/// Four lanes per rank: compute, exchanges, all-reduces (if they have a lane of their own), host
/// link. Parts of one lane follow each other in the order in which they are added.
class BatchLanes {
 public:
  BatchLanes(const BatchTime& batch, const BatchOrder& order)
      : batch_(batch),
        ranks_(batch.ranks.size()),
        lanes_(kLanes * ranks_),
        spans_(kBatchParts * ranks_) {
    batch.step ? launch_step(*batch.step, order) : launch_at_once(order);
  }

  double makespan_us() const { return makespan_us_; }

  double waiting_us(BatchPart part, std::size_t rank) const {
    BatchPart before = BatchPart::kLookupForward;
    if (part == BatchPart::kGradientExchange) {
      before = batch_.step ? BatchPart::kSplit : BatchPart::kTopBackward;
    }
    return std::max(0.0, span(part, rank).start_us - span(before, rank).end_us);
  }

  // The critical path names the parts that add up to the whole, and its rank if ranks differ.
  void find_limits(BatchTime& batch) const {
    batch.critical = {};
    std::vector<double> lookups_us(ranks_, 0.0);
    BatchPart part = last_.before;
    std::size_t rank = last_.before_rank;
    double begun_us = makespan_us_;
    while (part != BatchPart::kCount) {
      const PartSpan& at = span(part, rank);
      const double end_us = std::min(at.end_us, begun_us);  // parts may overlap with the next
      const double us = std::max(0.0, end_us - at.start_us);
      const double own_us = std::min(us, part_us(part, rank));
      batch.critical[part] += own_us;
      batch.critical[BatchPart::kHost] += begun_us - end_us + us - own_us;
      begun_us = std::min(begun_us, at.start_us);
      if (part == BatchPart::kLookupForward || part == BatchPart::kLookupBackward) {
        lookups_us[rank] += own_us;
      }
      part = at.before;
      rank = at.before_rank;
    }
    batch.critical[BatchPart::kHost] += begun_us;
    batch.limiting_rank = static_cast<std::size_t>(
        std::max_element(lookups_us.begin(), lookups_us.end()) - lookups_us.begin());
  }

 private:
  // HugeCTR looks up first and exchanges vectors in parallel with the bottom MLP.
  void launch_at_once(const BatchOrder& order) {
    if (!order.pipelined) {
      collective(BatchPart::kIdExchange, kNetwork, {});
      each(BatchPart::kPrefetch, kLink, {BatchPart::kIdExchange});
      each(BatchPart::kLookupForward, kCompute, {BatchPart::kIdExchange, BatchPart::kPrefetch});
    } else {
      each(BatchPart::kPrefetch, kLink, {});
      each(BatchPart::kLookupForward, kCompute, {});
    }
    collective(BatchPart::kVectorExchange, kNetwork, {BatchPart::kLookupForward});
    if (order.pipelined) collective(BatchPart::kIdExchange, kNetwork, {});
    each(BatchPart::kBottomForward, kCompute, {});
    each(BatchPart::kTopForward, kCompute, {BatchPart::kVectorExchange});
    each(BatchPart::kTopBackward, kCompute, {});
    collective(BatchPart::kGradientExchange, kNetwork, {BatchPart::kTopBackward});
    each(BatchPart::kBottomBackward, kCompute, {});
    collective(BatchPart::kAllReduce, order.reduces_beside ? kReduce : kNetwork,
               {BatchPart::kBottomBackward});
    each(BatchPart::kLookupBackward, kCompute, {BatchPart::kGradientExchange});
    each(BatchPart::kDenseOptimizer, kCompute, {BatchPart::kAllReduce});
  }

  // TorchRec's step, which begins once the sizes of this batch's ids are known: backward pass of
  // the batch before, forward pass of this one.
  void launch_step(const BatchWork& step, const BatchOrder& order) {
    host_us_.assign(ranks_, 0.0);
    if (order.pipelined) {
      collective(BatchPart::kIdExchange, kNetwork, {});
      each(BatchPart::kPrefetch, kLink, {});
    }
    collective(BatchPart::kFirstReduce, kNetwork, {});
    each(BatchPart::kTopBackward, kCompute, {});
    wait_on_device(BatchPart::kFirstReduce);
    wait_on_host(step.wait(HostWait::kIndexBackward));
    each(BatchPart::kInteractionBackward, kCompute, {});
    each(BatchPart::kSplit, kCompute, {});
    collective(BatchPart::kGradientExchange, kNetwork, {BatchPart::kSplit});
    lookups_beside_exchange(step);
    collective(BatchPart::kTableReduce, kNetwork, {});
    each(BatchPart::kBottomBackward, kCompute, {});
    collective(BatchPart::kAllReduce, order.reduces_beside ? kReduce : kNetwork,
               {BatchPart::kBottomBackward});
    each(BatchPart::kDenseOptimizer, kCompute, {BatchPart::kAllReduce, BatchPart::kTableReduce});
    each(BatchPart::kBottomForward, kCompute, {});
    if (!order.pipelined) {
      collective(BatchPart::kIdExchange, kNetwork, {BatchPart::kBottomForward});
      each(BatchPart::kPrefetch, kLink, {BatchPart::kIdExchange});
    }
    each(BatchPart::kIdPermute, kCompute, {BatchPart::kIdExchange});
    wait_on_host(step.wait(HostWait::kIdPermute));
    each(BatchPart::kLookupForward, kCompute, {BatchPart::kPrefetch});
    exchange_beside_lookups(step);
    each(BatchPart::kJoin, kCompute, {BatchPart::kVectorExchange});
    each(BatchPart::kInteractionForward, kCompute, {});
    wait_on_host(step.wait(HostWait::kIndexForward));
    each(BatchPart::kTopForward, kCompute, {});
    each(BatchPart::kIdSizes, kCompute, {});
    wait_on_host(step.wait(HostWait::kIdSizes));
    for (const double us : host_us_) makespan_us_ = std::max(makespan_us_, us);
  }

  // Each kind of exchange sends the vectors of its own lookups; copies are looked up last. All
  // groups are taken to be alike.
  void exchange_beside_lookups(const BatchWork& step) {
    const int groups = step.exchanges + (step.has_copies ? 1 : 0);
    PartSpan begun;
    for (std::size_t r = 0; r < ranks_; ++r) {
      const PartSpan& lookups = span(BatchPart::kLookupForward, r);
      const double exchange_us = part_us(BatchPart::kVectorExchange, r);
      for (int i = 1; i <= step.exchanges; ++i) {
        const double looked_up_us =
            lookups.start_us + (lookups.end_us - lookups.start_us) * i / groups;
        const double sent_us = exchange_us * (i - 1) / step.exchanges;
        wait(begun, {looked_up_us - sent_us, BatchPart::kLookupForward, r});
      }
      wait(begun, lanes_[kLanes * r + kNetwork]);
      launch(BatchPart::kVectorExchange, r);
    }
    place_everywhere(BatchPart::kVectorExchange, kNetwork, begun);
  }

  // Copies first, then each group once its gradients have come.
  void lookups_beside_exchange(const BatchWork& step) {
    const int groups = step.exchanges + (step.has_copies ? 1 : 0);
    for (std::size_t r = 0; r < ranks_; ++r) {
      LaneEnd& lane = lanes_[kLanes * r + kCompute];
      const PartSpan& exchange = span(BatchPart::kGradientExchange, r);
      const double lookups_us = part_us(BatchPart::kLookupBackward, r);
      PartSpan begun{.start_us = launch(BatchPart::kLookupBackward, r)};
      wait(begun, lane);
      for (int i = 1; i <= step.exchanges; ++i) {
        const double came_us =
            exchange.start_us + (exchange.end_us - exchange.start_us) * i / step.exchanges;
        const double done_us = lookups_us * (groups - step.exchanges + i - 1) / groups;
        wait(begun, {came_us - done_us, BatchPart::kGradientExchange, r});
      }
      place(BatchPart::kLookupBackward, r, lane, begun);
    }
  }

  enum Lane : std::size_t { kCompute, kNetwork, kReduce, kLink, kLanes };
  /// The time at which a lane is free, and the part before it.
  struct LaneEnd {
    double us = 0;
    BatchPart part = BatchPart::kCount;
    std::size_t rank = 0;
  };

  PartSpan& span(BatchPart part, std::size_t rank) {
    return spans_[static_cast<std::size_t>(part) * ranks_ + rank];
  }
  const PartSpan& span(BatchPart part, std::size_t rank) const {
    return spans_[static_cast<std::size_t>(part) * ranks_ + rank];
  }

  static void wait(PartSpan& span, const LaneEnd& end) {
    if (end.part == BatchPart::kCount || end.us < span.before_us) return;
    if (end.us == span.before_us && span.before != BatchPart::kCount) return;
    span.start_us = std::max(span.start_us, end.us);
    span.before_us = end.us;
    span.before = end.part;
    span.before_rank = end.rank;
  }

  void place(BatchPart part, std::size_t rank, LaneEnd& lane, PartSpan begun) {
    const double us = part_us(part, rank);
    begun.end_us = begun.start_us + us;
    // The last kernel starts when the host has reached it.
    if (!host_us_.empty() && us > 0) begun.end_us = std::max(begun.end_us, host_us_[rank]);
    span(part, rank) = begun;
    lane = {begun.end_us, part, rank};
    if (begun.end_us >= makespan_us_) {
      makespan_us_ = begun.end_us;
      last_.before = part;
      last_.before_rank = rank;
    }
  }

  double part_us(BatchPart part, std::size_t rank) const {
    const double us = batch_.ranks[rank].parts[part];
    return batch_.step ? std::max(0.0, us + batch_.step->device(part)) : us;
  }

  // The time at which the host of a rank launches the first of a part.
  double launch(BatchPart part, std::size_t rank) {
    if (host_us_.empty()) return 0;
    const double begun_us = host_us_[rank] + std::max(0.0, batch_.step->lead(part));
    host_us_[rank] += std::max(0.0, batch_.step->host(part));
    return begun_us;
  }

  // The compute lane goes on when the part has ended.
  void wait_on_device(BatchPart part) {
    for (std::size_t r = 0; r < ranks_; ++r) {
      LaneEnd& lane = lanes_[kLanes * r + kCompute];
      if (span(part, r).end_us > lane.us) lane = {span(part, r).end_us, part, r};
    }
  }

  // Until the compute lane has ended, and for `us` more; 0: there is no such wait.
  void wait_on_host(double us) {
    if (us <= 0) return;
    for (std::size_t r = 0; r < ranks_; ++r) {
      host_us_[r] = std::max(host_us_[r], lanes_[kLanes * r + kCompute].us) + us;
    }
  }

  void each(BatchPart part, Lane lane, std::initializer_list<BatchPart> after) {
    for (std::size_t r = 0; r < ranks_; ++r) {
      LaneEnd& end = lanes_[kLanes * r + lane];
      PartSpan begun{.start_us = launch(part, r)};
      for (BatchPart before : after) wait(begun, {span(before, r).end_us, before, r});
      wait(begun, end);
      place(part, r, end, begun);
    }
  }
  // Begins when the last rank has come.
  void collective(BatchPart part, Lane lane, std::initializer_list<BatchPart> after) {
    PartSpan begun;
    for (std::size_t r = 0; r < ranks_; ++r) {
      begun.start_us = std::max(begun.start_us, launch(part, r));
      for (BatchPart before : after) wait(begun, {span(before, r).end_us, before, r});
      wait(begun, lanes_[kLanes * r + lane]);
    }
    place_everywhere(part, lane, begun);
  }

  void place_everywhere(BatchPart part, Lane lane, const PartSpan& begun) {
    for (std::size_t r = 0; r < ranks_; ++r) place(part, r, lanes_[kLanes * r + lane], begun);
  }

  const BatchTime& batch_;
  const std::size_t ranks_;
  std::vector<LaneEnd> lanes_;
  std::vector<PartSpan> spans_;  // by part, then rank
  std::vector<double> host_us_;  ///< how far the host of each rank is; empty: it keeps ahead
  PartSpan last_;
  double makespan_us_ = 0;
};

}  // namespace

void schedule_batch(BatchTime& batch, const BatchOrder& order) {
  if (batch.ranks.empty()) return;
  const BatchLanes lanes(batch, order);
  batch.predicted_us = lanes.makespan_us();
  for (std::size_t r = 0; r < batch.ranks.size(); ++r) {
    batch.ranks[r].waiting_us = 0;
    for (const BatchPart part : {BatchPart::kVectorExchange, BatchPart::kGradientExchange}) {
      batch.ranks[r].waiting_us += lanes.waiting_us(part, r);
    }
  }
  lanes.find_limits(batch);
}

double batch_makespan_us(const BatchTime& batch, const BatchOrder& order) {
  return batch.ranks.empty() ? 0 : BatchLanes(batch, order).makespan_us();
}

}  // namespace perfmodel::sharding
