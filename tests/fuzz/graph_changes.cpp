#include "graph_changes.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace perfmodel::fuzz {
namespace {

using Json = nlohmann::ordered_json;

class Choice {
 public:
  explicit Choice(std::minstd_rand& random) : random_(random) {}

  std::size_t below(std::size_t count) { return count == 0 ? 0 : random_() % count; }
  bool one_in(std::size_t count) { return below(count) == 0; }

  template <class Values>
  const auto& of(const Values& values) {
    return values[below(std::size(values))];
  }

  std::int64_t size() {
    static constexpr std::int64_t kSizes[] = {0,
                                              1,
                                              2,
                                              3,
                                              4,
                                              6,
                                              7,
                                              8,
                                              12,
                                              16,
                                              24,
                                              32,
                                              64,
                                              100,
                                              -1,
                                              -2,
                                              128,
                                              512,
                                              4096,
                                              65536,
                                              std::int64_t{1} << 31,
                                              std::numeric_limits<std::int64_t>::max()};
    return of(kSizes);
  }

 private:
  std::minstd_rand& random_;
};

// ------------------------------------------------------------------------------ execution graphs

constexpr std::string_view kTypes[] = {"Tensor(float)",
                                       "Tensor(c10::Half)",
                                       "Tensor(c10::BFloat16)",
                                       "Tensor(double)",
                                       "Tensor(long int)",
                                       "Tensor(int)",
                                       "Tensor(bool)",
                                       "Tensor(unsigned char)",
                                       "GenericList[Tensor(float),Tensor(float)]",
                                       "Int",
                                       "Double",
                                       "Bool",
                                       "None",
                                       "String",
                                       "Tensor(signed char)"};
constexpr std::string_view kDevices[] = {"cuda:0", "cuda:1", "cpu", "meta", ""};

Json* attribute(Json& node, std::string_view name) {
  const auto attributes = node.find("attrs");
  if (attributes == node.end() || !attributes->is_array()) return nullptr;
  for (Json& one : *attributes) {
    if (one.is_object() && one.value("name", Json()) == name && one.contains("value")) {
      return &one["value"];
    }
  }
  return nullptr;
}

// Lists under `value`, at any depth, itself one of them.
std::vector<Json*> lists_in(Json& value) {
  std::vector<Json*> found;
  if (!value.is_array()) return found;
  found.push_back(&value);
  for (std::size_t i = 0; i < found.size() && found.size() < 256; ++i) {
    for (Json& inner : *found[i]) {
      if (inner.is_array()) found.push_back(&inner);
    }
  }
  return found;
}

class NodeChanger {
 public:
  NodeChanger(Json& nodes, Choice& choice) : nodes_(nodes), choice_(choice) {}

  void change() {
    Json& node = one();
    if (!node.is_object()) return;
    switch (choice_.below(14)) {
      case 0:
      case 1:
        set_parent(node);
        break;
      case 2:
        std::swap(node["id"], one()["id"]);
        break;
      case 3:
        nodes_.push_back(Json(node));
        if (!choice_.one_in(4)) nodes_.back()["id"] = choice_.size() / 2 + 100;
        break;
      case 4:
        if (nodes_.size() > 1) {
          nodes_.erase(nodes_.begin() + static_cast<std::ptrdiff_t>(choice_.below(nodes_.size())));
        }
        break;
      case 5:
        if (Json* thread = attribute(node, choice_.one_in(3) ? "fw_tid" : "tid")) {
          *thread = choice_.below(4);
        }
        break;
      case 6:
        if (Json* value = attribute(node, choice_.one_in(2) ? "seq_id" : "fw_parent")) {
          const Json* other = attribute(one(), "seq_id");
          *value = other && choice_.one_in(2) ? Json(*other) : Json(choice_.size());
        }
        break;
      case 7:
        if (Json* scope = attribute(node, "scope")) *scope = choice_.of(std::array{0, 1, 7, 255});
        break;
      case 8:
        node["name"] = Json(one()["name"]);
        break;
      case 9:
        node[side()] = Json(one()[side()]);
        break;
      case 10:
        set_type(node);
        break;
      case 11:
        set_storage(node);
        break;
      default:
        set_size(node);
    }
  }

 private:
  Json& one() { return nodes_[choice_.below(nodes_.size())]; }
  const char* side() { return choice_.one_in(3) ? "outputs" : "inputs"; }

  // The list that `key` gives for each argument of the inputs or outputs.
  Json* listed(Json& node, const char* key) {
    const auto arguments = node.find(side());
    if (arguments == node.end() || !arguments->is_object()) return nullptr;
    const auto list = arguments->find(key);
    return list == arguments->end() || !list->is_array() || list->empty() ? nullptr : &*list;
  }

  void set_parent(Json& node) {
    const char* key = node.contains("parent") ? "parent" : "ctrl_deps";
    if (choice_.one_in(8)) {
      node[key] = choice_.size();
    } else {
      node[key] = Json(one()["id"]);
    }
  }

  void set_type(Json& node) {
    if (Json* types = listed(node, "types")) {
      (*types)[choice_.below(types->size())] = choice_.of(kTypes);
    }
  }

  // A tensor is [id, storage, offset, elements, bytes of one, device].
  void set_storage(Json& node) {
    Json* values = listed(node, "values");
    Json* others = listed(one(), "values");
    if (!values || !others) return;
    Json& value = (*values)[choice_.below(values->size())];
    const Json& other = (*others)[choice_.below(others->size())];
    if (!value.is_array() || value.size() < 6) {
      value = Json(other);
      return;
    }
    const std::size_t at = choice_.below(6);
    if (at == 5) {
      value[at] = choice_.of(kDevices);
    } else if (other.is_array() && other.size() >= 6 && !choice_.one_in(4)) {
      value[at] = Json(other[at]);
    } else {
      value[at] = choice_.size();
    }
  }

  void set_size(Json& node) {
    Json* shapes = listed(node, "shapes");
    if (!shapes) return;
    const std::vector<Json*> lists = lists_in(*shapes);
    Json& list = *lists[choice_.below(lists.size())];
    if (list.empty() || choice_.one_in(8)) {
      list.push_back(choice_.one_in(8) ? Json::array() : Json(choice_.size()));
    } else if (choice_.one_in(6)) {
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(choice_.below(list.size())));
    } else {
      Json& item = list[choice_.below(list.size())];
      if (!item.is_array()) item = choice_.size();
    }
  }

  Json& nodes_;
  Choice& choice_;
};

// --------------------------------------------------------------------------- changes of the bases

constexpr std::string_view kBases[] = {"mlp_gpu",  "mlp_cpu",  "dlrm_gpu",   "dlrm_cpu",
                                       "bert_gpu", "bert_cpu", "lstm_gpu",   "lstm_cpu",
                                       "gru_gpu",  "gru_cpu",  "resnet_gpu", "resnet_cpu"};
constexpr std::string_view kNodeKeys[] = {"parent", "swap", "name", "arguments"};
constexpr std::string_view kRewrites[] = {
    "--batch 6",
    "--batch 1",
    "--sequence 3",
    "--precision bf16",
    "--precision fp16-scaled",
    "--precision bf16-o2",
    "--precision fp8",
    "--precision fp8-block",
    "--precision mxfp8",
    "--precision nvfp4",
    "--precision tf32",
    "--in-place gelu,layernorm",
    "--in-place gelu:1",
    "--recompute full",
    "--recompute op",
    "--recompute selective:1",
    "--recompute dropout",
    "--recompute scoring",
    "--checkpoint 1",
    "--checkpoint 0",
    "--checkpoint 1,masks",
    "--checkpoint ##",
    "--offload-activations",
    "--grad-dtype bf16",
    "--grad-dtype fp32",
    "--optimizer adam",
    "--optimizer adamw/fused",
    "--optimizer foreach",
    "--optimizer adam/8bit",
    "--optimizer sgd/loop",
    "--optimizer adagrad",
    "--accumulate 2",
    "--accumulate 3",
    "--data-parallel 8",
    "--data-parallel 2,cap=1,views",
    "--data-parallel 4,split=1",
    "--tensor-parallel 2",
    "--tensor-parallel 2,sequence",
    "--retarget nvidia",
    "--retarget amd,on-device",
    "--retarget nvidia,pageable",
    "--fuse-tables sgd",
    "--fuse-tables rowwise_adagrad",
    "--fuse-elementwise",
    "--fuse post-scheduling",
    "--fuse-norms",
    "--fuse-loss liger",
    "--fuse-loss linear",
    "--lstm fused",
    "--lstm library",
    "--lstm fused-wavefront",
    "--lstm unfused",
    "--hash-weights *:compression=2",
    "--hash-weights *:compression=2:scheme=robe",
    "--hash-weights aten::linear:compression=4:scheme=hashednet",
    "--cuda-graphs",
    "--compiled",
    "--index-skew 1.05",
    "--subgraph aten::*",
    "--subgraph 5:40",
    "--remove aten::t",
    "--remove *Backward0",
    "--kernel-time aten::mm=3",
    "--scale-kernel aten::*=0.5"};

void add_change(Json& document, Choice& choice) {
  Json& changes = document["changes"];
  if (!changes.is_array()) changes = Json::array();
  Json change = {{"node", choice.below(400)}};
  for (std::size_t keys = 1 + choice.below(2); keys > 0; --keys) {
    switch (choice.below(13)) {
      case 0:
      case 1:
      case 2:
        change[std::string(choice.of(kNodeKeys))] = choice.below(400);
        break;
      case 3:
        change["thread"] = choice.below(4);
        break;
      case 4:
        change["parent_id"] = choice.size();
        break;
      case 5:
        change["sequence"] = choice.below(64);
        break;
      case 6:
        change["scope"] = choice.of(std::array{0, 1, 7, 255});
        break;
      case 7:
        change[choice.one_in(2) ? "inputs" : "outputs"] = choice.below(3);
        break;
      case 8:
        change["rank"] = choice.below(4);
        break;
      case 9:
        change["dtype"] = choice.below(15);
        break;
      case 10:
        change["device"] = choice.below(4);
        break;
      case 11:
        change[choice.one_in(2) ? "tensor" : "storage"] = choice.below(200);
        break;
      default:
        change["size"] = choice.size();
    }
  }
  changes.push_back(std::move(change));
}

void change_base(Json& document, Choice& choice) {
  const auto drop_one = [&](const char* key) {
    const auto list = document.find(key);
    if (list == document.end() || !list->is_array() || list->empty()) return;
    list->erase(list->begin() + static_cast<std::ptrdiff_t>(choice.below(list->size())));
  };
  switch (choice.below(8)) {
    case 0:
      document["graph"] = choice.of(kBases);
      break;
    case 1:
      drop_one("changes");
      break;
    case 2: {
      if (!document.contains("rewrites")) break;
      Json& rewrites = document["rewrites"];
      if (!rewrites.is_array()) rewrites = Json::array();
      if (rewrites.size() >= 4) drop_one("rewrites");
      const auto at = static_cast<std::ptrdiff_t>(choice.below(rewrites.size() + 1));
      rewrites.insert(rewrites.begin() + at, Json(choice.of(kRewrites)));
      break;
    }
    default:
      add_change(document, choice);
  }
}

}  // namespace

bool change_graph(Json& document, std::minstd_rand& random) {
  if (!document.is_object()) return false;
  Choice choice(random);
  const auto graph = document.find("graph");
  if (graph != document.end() && graph->is_string()) {
    if (std::ranges::find(kBases, graph->get<std::string>()) == std::end(kBases)) return false;
    change_base(document, choice);
    return true;
  }
  Json& holder = graph != document.end() ? *graph : document;
  if (!holder.is_object()) return false;
  const auto nodes = holder.find("nodes");
  if (nodes == holder.end() || !nodes->is_array() || nodes->empty()) return false;
  const bool are_nodes = std::ranges::all_of(*nodes, [](const Json& node) {
    return node.is_object() && node.contains("id") && node.contains("name");
  });
  if (!are_nodes) return false;
  NodeChanger(*nodes, choice).change();
  return true;
}

}  // namespace perfmodel::fuzz
