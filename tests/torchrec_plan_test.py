#!/usr/bin/env python3
"""Loads a plan of `perfpredict shard` with examples/torchrec_plan.py, against a stand-in for the
parts of PyTorch and TorchRec that it imports, which refuses unknown names and other types.
"""
import dataclasses
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import types
import typing


def checked(cls):
    """A dataclass that takes no value of another type than it says."""
    cls = dataclasses.dataclass(cls)
    plain = cls.__init__

    def init(self, *args, **kwargs):
        plain(self, *args, **kwargs)
        for field, kind in typing.get_type_hints(cls).items():
            check(getattr(self, field), kind, f"{cls.__name__}.{field}")

    cls.__init__ = init
    return cls


def check(value, kind, where):
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Union:
        kinds = [i for i in inner if i is not type(None)]
        assert value is None or any(fits(value, k, where) for k in kinds), f"{where}: {value!r}"
    else:
        assert fits(value, kind, where), f"{where}: expected {kind}, found {value!r}"


def fits(value, kind, where):
    if typing.get_origin(kind) is list:
        for item in value:
            check(item, typing.get_args(kind)[0], where)
        return isinstance(value, list)
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


# Fields and their types as in torch 2.x and torchrec 1.x.
@checked
class ShardMetadata:
    shard_offsets: list[int]
    shard_sizes: list[int]
    placement: typing.Optional[str] = None


@checked
class EnumerableShardingSpec:
    shards: list[ShardMetadata]


@checked
class CacheParams:
    algorithm: typing.Optional[str] = None
    load_factor: typing.Optional[float] = None
    reserved_memory: typing.Optional[float] = None
    precision: typing.Optional[str] = None
    prefetch_pipeline: typing.Optional[bool] = None


@checked
class ParameterSharding:
    sharding_type: str
    compute_kernel: str
    ranks: typing.Optional[list[int]] = None
    sharding_spec: typing.Optional[EnumerableShardingSpec] = None
    cache_params: typing.Optional[CacheParams] = None


class EmbeddingModuleShardingPlan(dict):
    pass


@checked
class ShardingPlan:
    plan: dict


def stand_in(name, **members):
    parts = name.split(".")
    for i in range(1, len(parts) + 1):
        sys.modules.setdefault(".".join(parts[:i]), types.ModuleType(".".join(parts[:i])))
    for key, value in members.items():
        setattr(sys.modules[name], key, value)


def main():
    perfpredict, loader = sys.argv[1], pathlib.Path(sys.argv[2])
    stand_in("torch.distributed._shard.sharding_spec",
             EnumerableShardingSpec=EnumerableShardingSpec, ShardMetadata=ShardMetadata)
    stand_in("torchrec.distributed.types", CacheParams=CacheParams,
             EmbeddingModuleShardingPlan=EmbeddingModuleShardingPlan,
             ParameterSharding=ParameterSharding, ShardingPlan=ShardingPlan)
    spec = importlib.util.spec_from_file_location("torchrec_plan", loader)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with tempfile.TemporaryDirectory() as folder:
        tables = pathlib.Path(folder) / "tables.json"
        tables.write_text(json.dumps({
            "tables": [{"name": "hot", "num_embeddings": 1000, "embedding_dim": 64,
                        "feature_names": ["a", "b"], "data_type": "FP32", "pooling": "SUM"},
                       {"name": "big", "num_embeddings": 400000000, "embedding_dim": 64,
                        "feature_names": ["c"], "data_type": "FP32", "pooling": "SUM"}],
            "constraints": {"hot": {"pooling_factors": [3, 5], "sharding_types": ["data_parallel"]},
                            "big": {"pooling_factors": [20], "cache_params": {"load_factor": 0.1},
                                    "sharding_types": ["row_wise"],
                                    "compute_kernels": ["fused_uvm_caching"]}}}))
        plan_file = pathlib.Path(folder) / "plan.json"
        subprocess.run([perfpredict, "shard", "rank", str(tables), "--gpu", "h100-sxm-80gb",
                        "--world", "8", "--batch-per-gpu", "1024", "--pipeline", "prefetch",
                        "--module", "model.sparse.ebc", "-o", str(plan_file)],
                       check=True, stdout=subprocess.DEVNULL)
        plan = module.load_plan(plan_file).plan
    assert list(plan) == ["model.sparse.ebc"], list(plan)
    hot, big = plan["model.sparse.ebc"]["hot"], plan["model.sparse.ebc"]["big"]
    assert hot.sharding_type == "data_parallel" and hot.sharding_spec is None
    assert hot.ranks == list(range(8)) and hot.cache_params is None
    assert big.compute_kernel == "fused_uvm_caching" and len(big.sharding_spec.shards) == 8
    assert big.sharding_spec.shards[7].placement == "rank:7/cuda:7"
    assert sum(s.shard_sizes[0] for s in big.sharding_spec.shards) == 400000000
    assert big.cache_params.load_factor == 0.1 and big.cache_params.prefetch_pipeline is True
    print("loaded a plan of 2 tables for 8 GPUs")


if __name__ == "__main__":
    main()
