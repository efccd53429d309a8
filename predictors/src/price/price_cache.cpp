#include "perfmodel/predictors/detail/price_cache.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <new>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "perfmodel/result.hpp"

namespace perfmodel {
namespace {

constexpr std::size_t kFirstWords = 7;  ///< enough for matrix products
constexpr std::size_t kKeyWords = 15;   ///< totals and the longest shape (convolution)
constexpr std::size_t kPriceWords = 8;

std::uint64_t bits(double x) { return std::bit_cast<std::uint64_t>(x); }
std::uint64_t bits(std::int64_t x) { return static_cast<std::uint64_t>(x); }

// 0: unknown.
std::uint64_t bits(std::optional<Knowledge> knowledge) {
  return knowledge ? static_cast<std::uint64_t>(*knowledge) + 1 : 0;
}
std::optional<Knowledge> knowledge_of(std::uint64_t bits) {
  return bits == 0 ? std::nullopt : std::optional(static_cast<Knowledge>(bits - 1));
}

using PriceWords = std::array<std::uint64_t, kPriceWords>;

PriceWords pack(const Price& price) {
  return {bits(price.time.count()),
          bits(price.low.count()),
          bits(price.high.count()),
          bits(price.compute.count()),
          bits(price.memory.count()),
          bits(price.latency.count()),
          reinterpret_cast<std::uintptr_t>(price.model.data()),
          std::uint64_t{price.model.size()} << 16 | static_cast<std::uint64_t>(price.bound) << 8 |
              bits(price.knowledge) << 1 | static_cast<std::uint64_t>(price.in_range)};
}

Price unpack(const PriceWords& words) {
  const auto time = [&](std::size_t i) { return Microseconds{std::bit_cast<double>(words[i])}; };
  return {.time = time(0),
          .low = time(1),
          .high = time(2),
          .compute = time(3),
          .memory = time(4),
          .latency = time(5),
          .bound = static_cast<Bound>(words[7] >> 8 & 0xFF),
          // A pointer from pack(). NOLINTNEXTLINE(performance-no-int-to-ptr)
          .model = {reinterpret_cast<const char*>(words[6]), words[7] >> 16},
          .in_range = (words[7] & 1) != 0,
          .knowledge = knowledge_of(words[7] >> 1 & 7)};
}

}  // namespace

/// All that tells one kernel from another, in words. Small fields share the head; the head also
/// says how many words there are. The first ones that a shape leaves free are 0.
struct PriceCache::Key {
  std::uint32_t head;
  std::size_t size;
  std::array<std::uint64_t, kKeyWords> words;
  std::uint64_t hash;

  /// False for work that has no key.
  bool set(const KernelWork& work);
  bool equals(const Key& other) const {
    return head == other.head && size == other.size &&
           std::equal(words.begin(), words.begin() + size, other.words.begin());
  }

 private:
  template <class... Values>
  void add(Values... values) {
    ((words[size++] = bits(values)), ...);
  }
};

bool PriceCache::Key::set(const KernelWork& work) {
  static_assert(std::variant_size_v<decltype(work.shape)> == 13,
                "a new shape needs its words here");
  std::uint32_t details = 0;
  size = 0;
  std::fill_n(words.begin(), kFirstWords, 0);
  add(work.flop.value, work.bytes_read.value, work.bytes_written.value);
  if (const auto* gemm = std::get_if<GemmShape>(&work.shape)) {
    add(gemm->batch, gemm->m, gemm->n, gemm->k);
    details = gemm->a_transposed | gemm->b_transposed << 1 | gemm->has_bias << 2 |
              static_cast<std::uint32_t>(gemm->scaling) << 3 | gemm->quantizes_a << 5;
  } else if (const auto* rows = std::get_if<RowShape>(&work.shape)) {
    add(rows->rows, rows->cols, rows->table_rows, rows->batch);
    if (rows->zipf_exponent > 0) add(rows->zipf_exponent);
    details = std::uint32_t{rows->is_strided} | std::uint32_t{rows->is_channel} << 1 |
              std::uint32_t{rows->is_rms} << 2 | static_cast<std::uint32_t>(rows->scaling) << 3 |
              static_cast<std::uint32_t>(rows->access) << 5 | std::uint32_t{rows->is_log} << 7 |
              std::uint32_t{rows->is_cudnn} << 8 | std::uint32_t{rows->is_channels_last} << 9;
  } else if (const auto* c = std::get_if<ConvolutionShape>(&work.shape)) {
    add(c->n, c->c, c->h, c->w, c->k, c->r, c->s, c->p, c->q, c->groups, c->stride);
    details = static_cast<std::uint32_t>(c->pass) | std::uint32_t{c->channels_last} << 2;
  } else if (const auto* e = std::get_if<EmbeddingShape>(&work.shape)) {
    add(e->batch, e->num_tables, e->num_rows, e->dim, e->pooling_factor, e->optimizer_bytes_per_row,
        e->zipf_exponent, e->zipf_shift,
        std::int64_t{e->weight_bytes} << 32 | static_cast<std::uint32_t>(e->index_bytes),
        std::int64_t{e->output_bytes});
    details = std::uint32_t{e->is_serial};
  } else if (const auto* copy = std::get_if<CopyShape>(&work.shape)) {
    add(copy->run_bytes);
    details = static_cast<std::uint32_t>(copy->kind) | std::uint32_t{copy->pageable} << 4;
  } else if (const auto* a = std::get_if<AttentionShape>(&work.shape)) {
    add(a->batch, a->heads, a->seq_q, a->seq_k, a->head_dim, a->kv_heads);
    details = static_cast<std::uint32_t>(a->method) | static_cast<std::uint32_t>(a->pass) << 2 |
              std::uint32_t{a->causal} << 4 | std::uint32_t{a->writes_cache} << 5 |
              static_cast<std::uint32_t>(a->kernel) << 6 | std::uint32_t{a->dropout} << 3;
  } else if (const auto* recurrent = std::get_if<RecurrentShape>(&work.shape)) {
    add(recurrent->hidden, recurrent->batch, recurrent->timesteps, recurrent->layers);
    details = static_cast<std::uint32_t>(recurrent->cell) |
              static_cast<std::uint32_t>(recurrent->pass) << 4 |
              std::uint32_t{recurrent->persistent} << 6;
  } else if (const auto* grouped = std::get_if<GroupedGemmShape>(&work.shape)) {
    add(grouped->groups, grouped->rows, grouped->n, grouped->k, grouped->imbalance);
  } else if (const auto* x = std::get_if<ExpertsShape>(&work.shape)) {
    add(x->tokens, x->hidden, x->inter, x->experts, x->topk, x->power_law);
    details = static_cast<std::uint32_t>(x->kernel) | static_cast<std::uint32_t>(x->routing) << 2;
  } else if (const auto* linear = std::get_if<LinearAttentionShape>(&work.shape)) {
    add(linear->batch, linear->seq, linear->k_heads, linear->k_dim, linear->v_heads, linear->v_dim,
        linear->filter);
    details = static_cast<std::uint32_t>(linear->kernel);
  } else if (const auto* hashed = std::get_if<HashedProductShape>(&work.shape)) {
    add(hashed->m, hashed->n, hashed->k, hashed->elements, hashed->tile_k, hashed->tile_n);
    details = static_cast<std::uint32_t>(hashed->scheme) | std::uint32_t{hashed->is_weight_gradient}
                                                               << 1;
  } else if (std::holds_alternative<CollectiveShape>(work.shape)) {
    return false;
  }
  // Three bits. Shapes that use them (rows, attention) have one layout alone.
  details |= static_cast<std::uint32_t>(work.layout) << 8;
  PERFMODEL_CHECK(details < 1U << 11);
  head = static_cast<std::uint32_t>(work.family) | static_cast<std::uint32_t>(work.dtype) << 8 |
         static_cast<std::uint32_t>(work.shape.index()) << 16 | details << 20 |
         std::uint32_t{work.matrix_units} << 31;

  // A sum of products with odd numbers, whose factors wait for nothing, stirred at the end. Doubles
  // of round sizes have nothing in their lower half: the upper one goes there too.
  std::uint64_t sum = head;
  std::uint64_t factor = 0x9E3779B97F4A7C15;
  for (std::size_t i = 0; i < size; ++i) {
    sum += (words[i] ^ words[i] >> 32) * factor;
    factor += 0xA24BAED4963EE406;  // even: stays odd
  }
  sum = (sum ^ sum >> 32) * 0xD6E8FEB86659FD93;
  sum = (sum ^ sum >> 32) * 0xD6E8FEB86659FD93;
  hash = sum ^ sum >> 32;
  return true;
}

/// Three cache lines: what lookups compare; the price; the rest of long shapes.
struct alignas(64) PriceCache::Entry {
  /// Even: at rest, 0 without a price; odd: being written. (A reader would have to sleep through
  /// 2^31 changes of one entry to take two numbers for the same.)
  std::atomic<std::uint32_t> sequence;
  std::atomic<std::uint32_t> head;
  std::array<std::atomic<std::uint64_t>, kFirstWords> first_words;
  std::array<std::atomic<std::uint64_t>, kPriceWords> price;
  std::array<std::atomic<std::uint64_t>, kKeyWords - kFirstWords> more_words;

  // Loads acquire and stores release: a reader of a writer's word sees that writer's odd number
  // when it checks the sequence again, and drops the price.
  bool has(const Key& key) const {
    std::uint64_t difference = head.load(std::memory_order_acquire) ^ key.head;
    for (std::size_t i = 0; i < kFirstWords; ++i) {
      difference |= first_words[i].load(std::memory_order_acquire) ^ key.words[i];
    }
    for (std::size_t i = kFirstWords; i < key.size; ++i) {
      difference |= more_words[i - kFirstWords].load(std::memory_order_acquire) ^ key.words[i];
    }
    return difference == 0;
  }
  PriceWords load_price() const {
    PriceWords words;
    for (std::size_t i = 0; i < kPriceWords; ++i)
      words[i] = price[i].load(std::memory_order_acquire);
    return words;
  }
  void store(const Key& key, const PriceWords& words) {
    head.store(key.head, std::memory_order_release);
    for (std::size_t i = 0; i < kFirstWords; ++i) {
      first_words[i].store(key.words[i], std::memory_order_release);
    }
    for (std::size_t i = kFirstWords; i < key.size; ++i) {
      more_words[i - kFirstWords].store(key.words[i], std::memory_order_release);
    }
    for (std::size_t i = 0; i < kPriceWords; ++i) {
      price[i].store(words[i], std::memory_order_release);
    }
  }
};

namespace {

// Zeros of the system, page by page as they are touched: of 65,536 entries a question needs a
// hundred.
void* map_zeros(std::size_t bytes) {
  void* const zeros =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (zeros == MAP_FAILED) throw std::bad_alloc();
  return zeros;
}

}  // namespace

PriceCache::PriceCache(const KernelModels& models, const Gpu& gpu, std::size_t capacity)
    : models_(models),
      gpu_(gpu),
      mask_(std::bit_ceil(std::max(capacity, kProbes)) - 1),
      entries_(static_cast<Entry*>(map_zeros((mask_ + 1) * kEntryBytes))) {
  static_assert(sizeof(Entry) == kEntryBytes && std::is_trivially_destructible_v<Entry>);
}

PriceCache::~PriceCache() { munmap(entries_, capacity() * kEntryBytes); }

std::size_t PriceCache::size() const {
  return static_cast<std::size_t>(std::count_if(
      entries_, entries_ + capacity(),
      [](const Entry& entry) { return entry.sequence.load(std::memory_order_relaxed) != 0; }));
}

bool PriceCache::find(const Key& key, Price& price) const {
  for (std::size_t probe = 0; probe < kProbes; ++probe) {
    const Entry& entry = entries_[(key.hash + probe) & mask_];
    const std::uint32_t sequence = entry.sequence.load(std::memory_order_acquire);
    if (sequence == 0) return false;  // places are never given back: no later one is taken
    if (sequence % 2 != 0 || !entry.has(key)) continue;
    const PriceWords words = entry.load_price();
    if (entry.sequence.load(std::memory_order_relaxed) != sequence) continue;
    price = unpack(words);
    return true;
  }
  return false;
}

void PriceCache::insert(const Key& key, const Price& price) {
  // With all places taken, which one is given up moves on with the misses: kernels whose hashes
  // agree must not drive each other out for ever.
  std::size_t offset = (key.hash >> 48 ^ misses()) % kProbes;
  for (std::size_t probe = 0; probe < kProbes; ++probe) {
    if (entries_[(key.hash + probe) & mask_].sequence.load(std::memory_order_relaxed) == 0) {
      offset = probe;
      break;
    }
  }
  Entry& entry = entries_[(key.hash + offset) & mask_];
  std::uint32_t sequence = entry.sequence.load(std::memory_order_relaxed);
  if (sequence % 2 != 0 ||
      !entry.sequence.compare_exchange_strong(sequence, sequence + 1, std::memory_order_acquire,
                                              std::memory_order_relaxed)) {
    return;  // another thread is writing
  }
  entry.store(key, pack(price));
  const std::uint32_t done = sequence + 2;
  entry.sequence.store(done != 0 ? done : 2, std::memory_order_release);
}

Price PriceCache::price(const KernelWork& work) {
  Key key;
  Price price;
  const bool has_key = key.set(work);
  if (has_key && find(key, price)) return price;
  misses_.fetch_add(1, std::memory_order_relaxed);
  price = models_.price(work, gpu_);
  if (has_key) insert(key, price);
  return price;
}

bool PriceCache::find(const KernelWork& work, Price& price) const {
  Key key;
  return key.set(work) && find(key, price);
}

void PriceCache::price_many(std::span<const KernelWork> work, std::span<Price> prices) {
  PERFMODEL_CHECK(work.size() == prices.size());
  Key key;
  struct Place {
    std::size_t of_price, of_missing;
  };
  std::vector<Place> places;
  std::vector<KernelWork> missing;
  std::vector<Key> keys;  // by missing; those without one are empty
  std::unordered_map<std::uint64_t, std::size_t> by_hash;
  for (std::size_t i = 0; i < work.size(); ++i) {
    const bool has_key = key.set(work[i]);
    if (has_key && find(key, prices[i])) continue;
    const std::size_t next = missing.size();
    const std::size_t same = has_key ? by_hash.try_emplace(key.hash, next).first->second : next;
    const bool is_new = same == next || !keys[same].equals(key);
    places.push_back({i, is_new ? next : same});
    if (!is_new) continue;
    if (!has_key) key.size = 0;
    missing.push_back(work[i]);
    keys.push_back(key);
  }
  if (missing.empty()) return;
  misses_.fetch_add(missing.size(), std::memory_order_relaxed);
  std::vector<Price> missing_prices(missing.size());
  models_.price_many(missing, gpu_, missing_prices);
  for (std::size_t i = 0; i < missing.size(); ++i) {
    if (Price known; keys[i].size > 0 && !find(keys[i], known)) insert(keys[i], missing_prices[i]);
  }
  for (const Place& place : places) prices[place.of_price] = missing_prices[place.of_missing];
}

}  // namespace perfmodel
