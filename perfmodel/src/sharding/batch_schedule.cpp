#include "batch_schedule.hpp"

#include <algorithm>
#include <initializer_list>

namespace perfmodel::sharding {
namespace {

/// A part on one rank, and the part that it waited for: the one that ended last before it.
struct PartSpan {
  double start_us = 0, end_us = 0;
  BatchPart before = BatchPart::kCount;  ///< kCount: none
  std::size_t before_rank = 0;
};

/// Four lanes per rank: compute, exchanges, all-reduces (if they have a lane of their own), host
/// link. Parts of one lane follow each other in the order in which they are added.
class BatchLanes {
 public:
  BatchLanes(const BatchTime& batch, const BatchOrder& order)
      : batch_(batch), ranks_(batch.ranks.size()), lanes_(kLanes * ranks_) {
    for (std::vector<PartSpan>& spans : spans_) spans.resize(ranks_);
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

  double makespan_us() const { return makespan_us_; }

  double waiting_us(BatchPart part, std::size_t rank) const {
    const BatchPart before =
        part == BatchPart::kVectorExchange ? BatchPart::kLookupForward : BatchPart::kTopBackward;
    return std::max(0.0, span(part, rank).start_us - span(before, rank).end_us);
  }

  // The critical path names the parts that add up to the whole, and its rank if ranks differ.
  void find_limits(BatchTime& batch) const {
    batch.critical = {};
    std::vector<double> lookups_us(ranks_, 0.0);
    BatchPart part = last_.before;
    std::size_t rank = last_.before_rank;
    while (part != BatchPart::kCount) {
      const PartSpan& at = span(part, rank);
      batch.critical[part] += batch_.ranks[rank].parts[part];
      if (part == BatchPart::kLookupForward || part == BatchPart::kLookupBackward) {
        lookups_us[rank] += batch_.ranks[rank].parts[part];
      }
      part = at.before;
      rank = at.before_rank;
    }
    batch.limiting_rank = static_cast<std::size_t>(
        std::max_element(lookups_us.begin(), lookups_us.end()) - lookups_us.begin());
  }

 private:
  enum Lane : std::size_t { kCompute, kNetwork, kReduce, kLink, kLanes };
  /// The time at which a lane is free, and the part before it.
  struct LaneEnd {
    double us = 0;
    BatchPart part = BatchPart::kCount;
    std::size_t rank = 0;
  };

  PartSpan& span(BatchPart part, std::size_t rank) {
    return spans_[static_cast<std::size_t>(part)][rank];
  }
  const PartSpan& span(BatchPart part, std::size_t rank) const {
    return spans_[static_cast<std::size_t>(part)][rank];
  }

  static void wait(PartSpan& span, const LaneEnd& end) {
    if (end.part == BatchPart::kCount || end.us < span.start_us) return;
    if (end.us == span.start_us && span.before != BatchPart::kCount) return;
    span.start_us = end.us;
    span.before = end.part;
    span.before_rank = end.rank;
  }

  void place(BatchPart part, std::size_t rank, LaneEnd& lane, PartSpan begun) {
    begun.end_us = begun.start_us + batch_.ranks[rank].parts[part];
    span(part, rank) = begun;
    lane = {begun.end_us, part, rank};
    if (begun.end_us >= makespan_us_) {
      makespan_us_ = begun.end_us;
      last_.before = part;
      last_.before_rank = rank;
    }
  }

  void each(BatchPart part, Lane lane, std::initializer_list<BatchPart> after) {
    for (std::size_t r = 0; r < ranks_; ++r) {
      LaneEnd& end = lanes_[kLanes * r + lane];
      PartSpan begun;
      for (BatchPart before : after) wait(begun, {span(before, r).end_us, before, r});
      wait(begun, end);
      place(part, r, end, begun);
    }
  }
  // Begins when the last rank has come.
  void collective(BatchPart part, Lane lane, std::initializer_list<BatchPart> after) {
    PartSpan begun;
    for (std::size_t r = 0; r < ranks_; ++r) {
      for (BatchPart before : after) wait(begun, {span(before, r).end_us, before, r});
      wait(begun, lanes_[kLanes * r + lane]);
    }
    for (std::size_t r = 0; r < ranks_; ++r) place(part, r, lanes_[kLanes * r + lane], begun);
  }

  const BatchTime& batch_;
  const std::size_t ranks_;
  std::vector<LaneEnd> lanes_;
  std::array<std::vector<PartSpan>, kBatchParts> spans_;
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
