#include "added_ops.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "overheads/host_kind.hpp"

namespace perfmodel {
namespace {

constexpr std::int64_t kFirstSequence = std::int64_t{1} << 40;  // beyond recorded numbers
constexpr std::int32_t kOwnGroup = std::numeric_limits<std::int32_t>::max();  // no record has it

std::int32_t stream_of(const Instruction& at) {
  if (const Launch* launch = launch_of(at)) return launch->stream;
  const auto* sync = std::get_if<Synchronisation>(&at.what);
  return sync ? sync->stream : 0;
}

}  // namespace

AddedOps::AddedOps(const Gpu& gpu, const OverheadTable& table, LoweredProgram& program)
    : gpu_(gpu),
      table_(table),
      lowered_(program),
      before_(program.program.items.size()),
      after_(program.program.items.size()) {
  for (const Instruction& at : program.program.instructions) {
    collective_stream_ = std::max(collective_stream_, stream_of(at) + 1);
  }
}

std::int32_t AddedOps::add_item(std::int32_t like, std::string_view title) {
  HostProgram& program = lowered_.program;
  ProgramItem item = program.item(like);
  item.title = title;
  item.is_label = false;
  item.first_kernel = static_cast<std::uint32_t>(program.kernels.size());
  item.kernels = 0;
  item.gap_level = item.op_level = KeyLevel::kName;
  program.items.push_back(item);
  return static_cast<std::int32_t>(program.items.size()) - 1;
}

void AddedOps::add(std::int32_t item, decltype(Instruction::what) what, Place& place) const {
  place.push_back(
      {.item = item, .thread = lowered_.program.item(item).thread, .what = std::move(what)});
}

// Host time between so many ops and the ops before them.
void AddedOps::add_gap(std::int32_t item, double ops, Place& place) const {
  const double us = table_.t1.find({}, gap_class_key(GapClass::kSibling)).us;
  add(item, HostWork{.term = Term::kT1, .us = ops * us}, place);
}

void AddedOps::add_host_ops(std::int32_t like, std::string_view title, std::string_view op,
                            std::size_t count, Place& place) {
  const auto times = static_cast<double>(count);
  const std::int32_t item = add_item(like, title);
  add_gap(item, times, place);
  const double us = table_.tx.find({}, hash_text(op), host_kind_key(op)).us;
  add(item, HostWork{.term = Term::kTx, .us = times * us}, place);
}

void AddedOps::add_launching_op(std::int32_t like, std::string_view title, std::string_view op,
                                Launch launch, PredictedKernel kernel, KernelQuestion question,
                                Place& place) {
  HostProgram& program = lowered_.program;
  const std::int32_t item = add_item(like, title);
  const std::uint64_t name = hash_text(op), kind = host_kind_key(op);
  add_gap(item, 1, place);
  add(item, HostWork{.term = Term::kT2, .us = table_.t2.find({}, name, kind).us}, place);
  launch.host_us = table_.call_us(gpu_.vendor == "amd" ? "hipLaunchKernel" : "cudaLaunchKernel").us;
  launch.stream = kernel.stream;
  launch.kernel = static_cast<std::int32_t>(program.kernels.size());
  program.kernels.push_back(std::move(kernel));
  program.items.back().kernels = 1;
  lowered_.questions.push_back(std::move(question));
  add(item, std::move(launch), place);
  add(item, HostWork{.term = Term::kT3, .us = table_.t3.find({}, name, kind).us}, place);
}

void AddedOps::add_kernel(std::int32_t like, std::string_view title, std::string_view op,
                          KernelWork work, Place& place) {
  PredictedKernel kernel{.name = std::string(title), .family = work.family};
  add_launching_op(like, title, op, {.latency_us = table_.device.launch_latency_us},
                   std::move(kernel), {.work = std::move(work)}, place);
}

std::int64_t AddedOps::add_collective(std::int32_t like, std::string_view title, KernelWork work,
                                      CollectiveLaunch how, Place& place) {
  HostProgram& program = lowered_.program;
  how.sequence = kFirstSequence + static_cast<std::int64_t>(collectives_++);
  how.group = kOwnGroup;
  how.bytes = work.bytes_read.value;
  how.work = static_cast<std::int32_t>(program.comm_works.size());
  program.comm_works.push_back(work);
  PredictedKernel kernel{.name = "nccl:" + std::get<CollectiveShape>(work.shape).kind,
                         .family = KernelFamily::kCollective,
                         .stream = collective_stream_};
  add_launching_op(like, title, "record_param_comms",
                   {.term = Term::kCollective,
                    .latency_us = table_.device.collective_latency_us,
                    .collective = program.add(how)},
                   std::move(kernel), {.work = std::move(work), .of_job = true}, place);
  return how.sequence;
}

void AddedOps::add_wait(std::int32_t like, std::int64_t sequence, Place& place) const {
  add(like, DeviceWait{.sequence = sequence, .group = kOwnGroup}, place);
}

void AddedOps::add_mark(std::int32_t like, std::int32_t number, Place& place) const {
  add(like, StreamMark{number}, place);
}

void AddedOps::splice() {
  std::vector<Instruction>& own = lowered_.program.instructions;
  std::vector<Instruction> whole;
  whole.reserve(own.size() * 2);
  std::vector<std::size_t> last(before_.size(), 0);
  std::vector<bool> begun(before_.size(), false);
  const auto append = [&](const Place& place) {
    whole.insert(whole.end(), place.begin(), place.end());
  };
  for (std::size_t i = 0; i < own.size(); ++i) last[own[i].item] = i;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const auto item = own[i].item;
    if (!begun[item]) append(before_[item]);
    begun[item] = true;
    whole.push_back(own[i]);
    if (last[item] == i) append(after_[item]);
  }
  own = std::move(whole);
}

}  // namespace perfmodel
