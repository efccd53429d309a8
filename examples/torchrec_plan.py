"""The plan that `perfpredict shard rank ... -o plan.json --module PATH` writes, for TorchRec.

    plan = load_plan("plan.json")
    model = DistributedModelParallel(module, plan=plan, device=device)
"""
import json

from torch.distributed._shard.sharding_spec import EnumerableShardingSpec, ShardMetadata
from torchrec.distributed.types import (CacheParams, EmbeddingModuleShardingPlan,
                                        ParameterSharding, ShardingPlan)


def load_plan(file):
    with open(file) as stream:
        modules = json.load(stream)["plan"]
    plan = {}
    for module, tables in modules.items():
        plan[module] = EmbeddingModuleShardingPlan()
        for name, table in tables.items():
            shards = [ShardMetadata(shard_offsets=shard["shard_offsets"],
                                    shard_sizes=shard["shard_sizes"],
                                    placement=shard["placement"])
                      for shard in table["shards"] or []]
            cache = table.get("cache_params")
            plan[module][name] = ParameterSharding(
                sharding_type=table["sharding_type"], compute_kernel=table["compute_kernel"],
                ranks=table["ranks"],
                sharding_spec=EnumerableShardingSpec(shards) if shards else None,
                cache_params=CacheParams(**cache) if cache else None)
    return ShardingPlan(plan=plan)
