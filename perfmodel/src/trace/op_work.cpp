#include "trace/op_work.hpp"

namespace perfmodel {

OpWorks op_works(const Trace& trace, const Gpu* gpu) {
  (void)gpu;
  return OpWorks(trace.host.size());
}

}  // namespace perfmodel
