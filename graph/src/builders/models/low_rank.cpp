#include "low_rank.hpp"

#include "builders/emit/ops.hpp"

namespace perfmodel {

AdaptedLinear make_adapted(TrainingStep& step, std::int64_t in, std::int64_t out, bool bias,
                           std::int64_t rank, bool frozen) {
  AdaptedLinear made;
  step.freeze(frozen);
  made.base = make_linear(step, in, out, bias);
  step.freeze(false);
  if (rank > 0) {
    made.down = step.parameter({rank, in});
    made.up = step.parameter({out, rank});
  }
  return made;
}

TensorRef linear(AutogradTape& tape, TensorRef x, const AdaptedLinear& weights) {
  const TensorRef whole = linear(tape, x, weights.base);
  if (!weights.down.exists()) return whole;
  return add(tape, whole, linear(tape, linear(tape, x, weights.down), weights.up));
}

Result<void> check_lora(const LoraConfig& lora, bool with_experts) {
  if (auto good = expect_at_least("lora", 0, lora.rank); !good) return good;
  if (lora.rank > 0 && with_experts && lora.on == LoraConfig::On::kAll) {
    return bad_config("lora-on: expected attention (experts take no adapters), found all");
  }
  return {};
}

}  // namespace perfmodel
