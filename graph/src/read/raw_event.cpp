#include "raw_event.hpp"

#include <cstring>

#include "trace_numbers.hpp"

namespace perfmodel {

namespace ondemand = simdjson::ondemand;

TraceCategory trace_category(std::string_view name) {
  // The usual ones come first.
  static constexpr std::pair<std::string_view, TraceCategory> kNames[] = {
      {"cpu_op", TraceCategory::kOp},
      {"cuda_runtime", TraceCategory::kCall},
      {"ac2g", TraceCategory::kIgnored},
      {"python_function", TraceCategory::kSkipEarly},
      {"kernel", TraceCategory::kKernel},
      {"Operator", TraceCategory::kOp},
      {"user_annotation", TraceCategory::kAnnotation},
      {"cuda_driver", TraceCategory::kCall},
      {"Runtime", TraceCategory::kCall},
      {"hip_runtime", TraceCategory::kCall},
      {"Kernel", TraceCategory::kKernel},
      {"gpu_memcpy", TraceCategory::kCopy},
      {"Memcpy", TraceCategory::kCopy},
      {"gpu_memset", TraceCategory::kSet},
      {"Memset", TraceCategory::kSet},
      {"cuda_sync", TraceCategory::kSync},
      {"cuda_profiler_range", TraceCategory::kCounters},
      {"xpu_runtime", TraceCategory::kCall},
      {"privateuse1_runtime", TraceCategory::kCall},
      {"privateuse1_driver", TraceCategory::kCall},
      // Categories without a use in a replay or a summary.
      {"async_cpu_to_gpu", TraceCategory::kIgnored},
      {"fwdbwd", TraceCategory::kIgnored},
      {"forward_backward", TraceCategory::kIgnored},
      {"cpu_instant_event", TraceCategory::kIgnored},
      {"cuda_event", TraceCategory::kIgnored},
      {"external_correlation", TraceCategory::kIgnored},
      {"gpu_user_annotation", TraceCategory::kIgnored},
      {"overhead", TraceCategory::kIgnored},
      {"Trace", TraceCategory::kIgnored},
      {"unrecorded", TraceCategory::kIgnored},  // in timelines written here
      {"", TraceCategory::kIgnored}};
  for (const auto& [known, category] : kNames) {
    if (known == name) return category;
  }
  return TraceCategory::kOther;
}

namespace {

simdjson::error_code take_text(ondemand::value& value, std::string_view& out) {
  const auto error = value.get_string().get(out);
  return error == simdjson::INCORRECT_TYPE ? simdjson::SUCCESS : error;
}

// Text of an array; of anything else nothing.
simdjson::error_code take_list(ondemand::value& value, std::string_view& out) {
  ondemand::array list;
  if (auto error = value.get_array().get(list)) {
    return error == simdjson::INCORRECT_TYPE ? simdjson::SUCCESS : error;
  }
  return list.raw_json().get(out);
}

// Members that readers need. Before the category is known, any may be a counter.
simdjson::error_code read_event_args(ondemand::value& value, RawEvent& event) {
  const bool may_count = event.category.empty();
  ondemand::object args;
  if (auto error = value.get_object().get(args)) {
    return error == simdjson::INCORRECT_TYPE ? simdjson::SUCCESS : error;
  }
  for (auto field : args) {
    if (auto error = field.error()) return error;
    ondemand::field&& member = std::move(field).value_unsafe();
    ondemand::value& item = member.value();
    const char* k = member.key().raw();
    if (may_count) {
      const auto number = parse_real(item.raw_json_token());
      const std::string_view key(k, std::strcspn(k, "\""));
      if (number) event.counters.emplace_back(key, *number);
    }
    const auto is = [k](std::string_view name) {
      return std::memcmp(k, name.data(), name.size()) == 0 && k[name.size()] == '"';
    };
    const auto integer = [&item](std::int64_t fallback) {
      return parse_integer(item.raw_json_token(), fallback);
    };
    const auto token = [&item] { return trimmed_token(item.raw_json_token()); };
    switch (*k) {
      case 'T':
        if (is("Total Allocated")) event.memory.allocated = token();
        if (is("Total Reserved")) event.memory.reserved = token();
        break;
      case 'B':
        if (is("Bytes")) event.memory.bytes = token();
        break;
      case 'A':
        if (is("Addr")) event.memory.address = token();
        break;
      case 'D':
        if (is("Device Type")) event.memory.device_type = token();
        if (is("Device Id")) event.memory.device = token();
        break;
      case 'E':
        if (is("External id")) event.external_id = integer(-1);
        if (is("Ev Idx")) event.event_index = integer(-1);
        break;
      case 'e':
        if (is("external id")) event.external_id = integer(-1);
        if (is("est. achieved occupancy %")) event.occupancy = token();
        break;
      case 'P':
        if (is("Profiler Event Index")) event.event_index = integer(-1);
        if (is("Process Group Name")) {
          if (auto error = take_text(item, event.process_group)) return error;
        }
        break;
      case 'C':
        if (is("Collective name")) {
          if (auto error = take_text(item, event.collective)) return error;
        }
        if (is("Concrete Inputs")) {
          if (auto error = take_list(item, event.concrete)) return error;
        }
        break;
      case 'I':
        if (is("In msg nelems")) event.in_elements = integer(-1);
        if (is("Input Dims")) {
          if (auto error = take_list(item, event.dims)) return error;
        } else if (is("Input type")) {
          if (auto error = take_list(item, event.types)) return error;
        } else if (is("Input Strides")) {
          if (auto error = take_list(item, event.strides)) return error;
        }
        break;
      case 'F':
        if (is("Fwd thread id")) event.forward_thread = integer(0);
        break;
      case 'O':
        if (is("Out msg nelems")) event.out_elements = integer(-1);
        break;
      case 'G':
        if (is("Group size")) event.group_size = integer(-1);
        break;
      case 'S':
        if (is("Seq")) event.sequence = integer(-1);
        if (is("Sequence number")) event.autograd_sequence = integer(-1);
        break;
      case 'R':
        if (is("Record function id")) event.record_function_id = integer(0);
        break;
      case 'c':
        if (is("correlation") || is("correlation_id")) event.correlation = integer(-1);
        if (is("cuda_sync_kind")) {
          if (auto error = take_text(item, event.sync_kind)) return error;
        }
        break;
      case 's':
        if (is("stream")) event.stream = integer(-1);
        break;
      case 'd':
        if (is("device")) event.device = integer(-1);
        if (is("dtype")) {
          if (auto error = take_text(item, event.dtype)) return error;
        }
        break;
      case 'b':
        if (is("bytes")) event.bytes = integer(0);
        if (is("blocks per SM")) event.blocks_per_sm = token();
        break;
      case 'm':
        if (is("memcpy_details") || is("memset_details")) {
          if (auto error = take_text(item, event.copy_details)) return error;
        }
        break;
      case 'n':
        if (is("name")) {
          if (auto error = take_text(item, event.thread_label)) return error;
        }
        break;
      case 'w':
        if (is("wait_on_stream")) event.wait_on_stream = integer(-1);
        if (is("wait_on_cuda_event_record_corr_id")) event.wait_on_event = integer(-1);
        break;
      default: break;
    }
  }
  return simdjson::SUCCESS;
}

// Reads counters by name; values that are no numbers do not count.
simdjson::error_code read_event_counters(ondemand::value& value, RawEvent& event) {
  ondemand::object args;
  if (auto error = value.get_object().get(args)) {
    return error == simdjson::INCORRECT_TYPE ? simdjson::SUCCESS : error;
  }
  for (auto field : args) {
    if (auto error = field.error()) return error;
    ondemand::field&& member = std::move(field).value_unsafe();
    const auto number = parse_real(member.value().raw_json_token());
    std::string_view key;
    if (auto error = member.unescaped_key().get(key)) return error;
    if (number) event.counters.emplace_back(key, *number);
  }
  return simdjson::SUCCESS;
}

}  // namespace

simdjson::error_code read_event(ondemand::object& object, RawEvent& event) {
  for (auto field : object) {
    if (auto error = field.error()) return error;
    // By reference: a copy of a value is stored in two parts and loaded as a whole, which stalls.
    ondemand::field&& member = std::move(field).value_unsafe();
    ondemand::value& value = member.value();
    const char* k = member.key().raw();
    const auto is = [k](std::string_view name) {
      return std::memcmp(k, name.data(), name.size()) == 0 && k[name.size()] == '"';
    };
    simdjson::error_code error = simdjson::SUCCESS;
    switch (*k) {
      case 'n':
        if (is("name")) error = take_text(value, event.name);
        break;
      case 'c':
        if (is("cat")) {
          error = take_text(value, event.category);
        }
        break;
      case 'p':
        if (is("ph")) error = take_text(value, event.phase);
        if (is("pid")) event.pid = trimmed_token(value.raw_json_token());
        break;
      case 't':
        if (is("ts")) event.ts = value.raw_json_token();
        if (is("tid")) event.tid = trimmed_token(value.raw_json_token());
        break;
      case 'd':
        if (is("dur")) event.duration = value.raw_json_token();
        break;
      case 'a':
        if (is("args")) {
          const TraceCategory category = trace_category(event.category);
          // Python frames are up to 85 % of a file: leave them before their arguments.
          if (category == TraceCategory::kSkipEarly) return error;
          error = category == TraceCategory::kCounters ? read_event_counters(value, event)
                                                       : read_event_args(value, event);
        }
        break;
      default: break;
    }
    if (error) return error;
  }
  return simdjson::SUCCESS;
}

}  // namespace perfmodel
