#!/usr/bin/env python3
"""Writes the inputs that the fuzz targets start from.

    python3 tests/fuzz/make_inputs.py SAMPLES OUT

SAMPLES is what make_samples.py made. Under OUT every target gets a folder of small inputs to start from, one of hostile inputs
(deep, long), `TARGET.list` (both and the regressions, separated by commas as libFuzzer has it) and `TARGET.dict` (words of its
inputs, for libFuzzer). `data` holds a few GPUs, so that not all are read each time. All of it comes from the samples, from data/
(cut down) or from the texts below; output is deterministic to the byte.
"""

import base64
import gzip
import json
import re
import struct
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
DATA = HERE.parent.parent / "data"
MOST_WORDS = 400
GPUS = ("a100-pcie-40gb", "a100-sxm-80gb", "h100-sxm-80gb", "p4", "t4", "v100-pcie-32gb", "v100-sxm2-32gb")
TOPOLOGIES = ("dgx-a100", "dgx1-v100", "hgx-h100", "pcie")
DEPTH, LENGTH = 30_000, 100_000


def text(document) -> bytes:
    return json.dumps(document).encode()


def cut(document, items=3):
    """The document with lists and objects of which the first few entries are kept, unless they hold the schema."""
    if isinstance(document, list):
        return [cut(v, items) for v in document[:items]]
    if isinstance(document, dict):
        keys = list(document)
        keys = keys if len(keys) <= 30 and not re.fullmatch("[0-9a-f]{16}", keys[0] if keys else "") else keys[:items]
        return {k: cut(document[k], items) for k in keys}
    return document


def small_overheads(path: Path) -> bytes:
    table = json.loads(path.read_text())
    named = ("t2", "t3", "t4", "t5", "tx", "ops")
    small = {k: (dict(list(v.items())[:3]) if k in named else v if k == "templates" else cut(v)) for k, v in table.items()}
    lists = small["templates"]["lists"] = small["templates"]["lists"][:4]
    small["templates"]["keys"] = {level: dict([(k, v) for k, v in keys.items() if v[0] < len(lists)][:4])
                                  for level, keys in small["templates"]["keys"].items()}
    return text(small)


def smallest_tree(text: str) -> str:
    """Cuts an ensemble to its smallest tree. Nodes (docs/formats.md) are five bytes each, base64 without padding."""
    data = base64.b64decode(text + "=" * (-len(text) % 4))
    trees, begin, missing = [], 0, 1
    for at in range(0, len(data), 5):
        missing += -1 if data[at] == 255 else 1
        if missing == 0:
            trees.append(data[begin:at + 5])
            begin, missing = at + 5, 1
    return base64.b64encode(min(trees, key=len, default=b"")).decode().rstrip("=")


def small_model(path: Path) -> bytes:
    document = json.loads(path.read_text())
    for model in document["models"]:
        model["card"] = {}
        for key, most in {"chips": 2, "chip_cells": 2, "chip_devices": 2, "gpus": 2, "launch_costs": 1, "corrections": 1}.items():
            model[key] = model[key][:most]
        model["common_cells"] = model["common_cells"][:3]
        model["chip_cells"] = [cells[:3] for cells in model["chip_cells"]]
        for trees in model["trees"].values():
            trees["nodes"] = smallest_tree(trees["nodes"])
    document["models"] = document["models"][:1]
    return text(document)


# Protobuf: a field is (number, value); the wire format of a message is all of them in order.
def varint(value: int) -> bytes:
    out = bytearray()
    value &= (1 << 64) - 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def message(*fields) -> bytes:
    out = b""
    for number, value in fields:
        if isinstance(value, float):
            out += varint(number << 3 | 1) + struct.pack("<d", value)
        elif isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            value = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | 2) + varint(len(value)) + value
    return out


def attribute(name, field, value) -> tuple:
    return (10, message((1, name), (field, value)))


def chakra(*nodes) -> bytes:
    head = message((1, "0.0.4"), (2, message((1, "schema"), (29, "1.0.2-chakra.0.0.4"))))
    return b"".join(varint(len(m)) + m for m in (head, *nodes))


def chakra_inputs() -> dict:
    io = message((1, "[1,2]"), (2, "[[2]]"), (3, '["Tensor(float)"]'))
    op = message((1, 1), (2, "aten::mm"), (3, 4), (6, 10), (7, 5), (8, io), (9, io), attribute("is_cpu_op", 27, 1))
    kernel = message((1, 2), (2, "gemm"), (3, 4), (4, varint(1)), (5, varint(1)), (6, 12), (7, 30),
                     attribute("num_ops", 9, 1 << 30), attribute("tensor_size", 13, 4096), attribute("is_cpu_op", 27, 0))
    reduce = message((1, 3), (2, "all-reduce"), (3, 7), (5, varint(2)), (7, 50), attribute("comm_type", 9, 0),
                     attribute("comm_size", 9, 1 << 20), attribute("pg_name", 29, "0"),
                     attribute("involved_dim", 28, message((1, b"\x01\x00"))), attribute("is_cpu_op", 27, 0))
    send = message((1, 4), (2, "send"), (3, 5), (7, 5), attribute("comm_src", 7, 0), attribute("comm_dst", 7, 1),
                   attribute("comm_tag", 7, 3), attribute("comm_size", 9, 64), attribute("is_cpu_op", 27, 0))
    others = message((1, 5), (2, "odd"), (3, 1), attribute("real", 3, 0.5), attribute("zigzag", 15, 7),
                     attribute("texts", 30, message((1, "a"), (1, "b"))), attribute("raw", 31, b"\x00\xff"), (99, 7))
    whole = chakra(op, kernel, reduce, send, others)
    return {"whole": whole, "packed": gzip.compress(whole, mtime=0), "head": chakra(), "cut": whole[:-5],
            "one": chakra(op), "missing": chakra(kernel), "twice": chakra(op, op)}


KERNEL_TABLES = {
    "gemm": "device,op,dtype,layout,shape_set,paper_train,b,m,n,k,time_us,kernel\n"
            "A100-PCIE-40GB,bmm,fp32,nn,train,1,6,27,390,21,35.7,sgemm\nP4,linear,fp32,tn,llm,0,1,8,58,13,54.5,sgemm\n",
    "deepbench": "device,precision,m,n,k,trans_a,trans_b,time_us\nV100,fp16,35,8457,1760,T,N,270\n",
    "conv": "device,precision,direction,n,c,h,w,k,r,s,pad_h,pad_w,stride_h,stride_w,time_us\n"
            "t4,fp32,dgrad,8,3,112,112,64,7,7,3,3,2,2,90\n",
    "square": "device,op,dtype,batch,c_in,c_out,ksize,hw,stride,pad,time_us\nt4,conv2d,fp32,8,3,64,7,112,2,3,90\n",
    "rnn": "device,precision,cell,direction,hidden,batch,timesteps,time_us\nt4,fp32,lstm,bwd_weights,512,16,25,900\n",
    "embedding": "op,bags_total,dtype,rows,dim,tables,pooling,zipf,optimizer,time_us\n"
                 "tbe_forward,8192,fp16,100000,64,8,20,1.05,sgd,33\nembedding_backward,64,fp32,10,4,1,1,0,adagrad,5\n",
    "vector": "# timing: graph replay, no launch cost\nid,gpu,op,dtype,direction,rows,cols,batch,features,table_rows,strided,"
              "n_inputs,bytes,time_us,l2_warm\na,t4,add,fp32,,127,168,,,,,2,,26.8,0\nb,t4,sum,fp16,,60,272,,,,1,,,46.9,1\n"
              "\"c,\"\"d\"\"\",t4,tril,fp32,bwd,,,64,27,,,,,9,\n e ,t4,gather,fp32,,60,272,,,1000,,,,8,0\n",
    "attention": "gpu,op,dtype,batch,heads,seq,head_dim,causal,method,direction,time_us\n"
                 "h100-sxm-80gb,attention,bf16,8,16,1024,64,1,flash,fwd,150\n",
    "copies": "op,copy_kind,pinned,bytes,row_bytes,time_us\nmemcpy,h2d,1,4096,,9\nstrided_copy,,,4096,64,7\nmemset,,,5,,3\n",
    "collective": "gpu,op,bytes,world_size,time_us\nv100-sxm2-32gb,all_reduce,1e6,8,60\n",
    "graph": "graph,node_idx,node,kind,stage,fused,repeat,op,b,m,n,k,rows,cols,in_elems,out_elems,bytes\n"
             "g,0,n,k,fw,1,2,linear,1,8,8,8,,,,,\ng,0,n,k,fw,1,2,add,,,,,8,8,128,64,\ng,1,n,k,bw,0,1,all_reduce,,,,,,,,,64\n",
}
GRAPH_TABLES = {
    "specs": "graph,model,phase,seq,batch,option,n_layer,num_nodes,aggregate\nb-inf,bert,inf,512,16,fusion,24,647,sum_fused\n"
             "b-train,bert,train,512,16,dp4,24,79,overlap_dp\np,bert,train,512,16,pp4_2,24,79,pipeline\n",
    "measured": "device,model,phase,seq,batch,option,graph,ood_model,measured_ms,suspect_label,neusight_ms,habitat_ms,"
                "roofline_ms,li_ms\nA100-PCIE-40GB,bert,inf,512,8,fusion,b-inf,0,174.7,0,204.8,,,\n",
}
STUDY = {
    "schema": "perfmodel-sharding-study", "version": 1, "name": "ads", "gpu": "a100-sxm-80gb", "topology": "dgx-a100",
    "world": 16, "local_world": 8, "batch_per_rank": 2048, "pipeline": "prefetch", "free_share": 0.1,
    "dense": {"bottom_mlp": [13, 512, 128], "top_mlp": [1024, 1], "interaction": "low_rank_cross", "cross_layers": 2,
              "cross_rank": 256, "dtype": "bf16"},
    "defaults": {"dim": 64, "dtype": "fp16", "optimizer": "adam", "pooling": 3, "min_columns": 32},
    "tables": [{"name": "plain", "rows": 4e7}, {"name": "alike", "rows": 10, "dim": 32, "count": 2, "pooling": 0.5},
               {"name": "full", "rows": 1000, "dtype": "int8", "output_dtype": "fp32", "optimizer": "none", "weighted": True,
                "pooled": False, "features": [{"pooling": 2}, {"pooling": 1.5, "poolings": 4, "batch": 512}],
                "zipf": {"exponent": 1.05, "shift": 2}, "min_columns": 16,
                "cache": {"load_factor": 0.3, "prefetch": True, "expected_lookups": 900, "distances": [5, 0, 2.5]},
                "wire": {"forward": "fp16", "backward": "bf16"}, "types": ["table_wise", "grid_shard"],
                "kernels": ["fused", "fused_uvm_caching"], "keep_with": "user", "forbid_ranks": [0, 15]}]}
PLAIN = {"schema": "perfmodel-sharding-study", "version": 1, "tables": [{"name": "a", "rows": 9, "dim": 4, "pooling": 1}]}
DENSE = {"bottom_mlp": [13, 128], "top_mlp": [64, 1]}
STUDIES = {
    "whole": STUDY, "plain": PLAIN, "dense": PLAIN | {"dense": DENSE},
    "times": PLAIN | {"dense": {"forward_us": 900, "backward_us": 0, "parameter_bytes": 8e6}},
    "hashed": PLAIN | {"hashed": {"elements": 27e6, "chunk": 8, "dtype": "fp16", "reference_kernel": False,
                                  "iterations_multiplier": 4.5}},
    "hashed_table": {**PLAIN, "tables": [PLAIN["tables"][0] | {"kernels": ["hashed"]}], "hashed": {"elements": 27e6}},
}
TABLES = {
    "plain": "table,rows,dim,pooling\na,4e7,128,1\n\"b\",10,64,2.5\n", "short": "rows,dim,pooling\n100,16,1\n",
    "ranks": "table,rows,dim,pooling,rank\na,1000,128,1,0\nb,10,64,3,-1\n",
    "more": "table,rows,dim,pooling,dtype,optimizer,zipf\na,1000,128,1,fp16,adam,1.05\n",
}
SHARDS = [{"shard_offsets": [0, 0], "shard_sizes": [10, 128], "placement": "rank:3/cuda:1"},
          {"shard_offsets": [0, 128], "shard_sizes": [10, 128], "placement": "rank:0/cuda:0"}]
ROWS = [{"shard_offsets": [25 * r, 0], "shard_sizes": [25, 16], "placement": f"rank:{r}/cuda:{r % 2}"} for r in range(4)]
TORCHREC_PLANS = {
    "columns": {"plan": {"embedding_bag_collection": {
        "user": {"sharding_type": "column_wise", "compute_kernel": "fused", "ranks": [3, 0], "shards": SHARDS},
        "all": {"sharding_type": "data_parallel", "compute_kernel": "dense", "ranks": [0, 1, 2, 3], "shards": None}}}},
    "rows": {"plan": {"a": {"t": {"sharding_type": "row_wise", "compute_kernel": "fused", "ranks": [0, 1, 2, 3],
                                  "shards": ROWS}},
                      "b": {"u": {"sharding_type": "table_wise", "compute_kernel": "fused_uvm_caching", "ranks": [2],
                                  "shards": [ROWS[0] | {"placement": "rank:2/cuda:0"}]}}}},
    "empty": {"plan": {}},
}
HUGECTR_PLANS = {
    "names": {"shard_strategy": [["mp", ["a", "c"]], ["dp", ["b"]]], "shard_matrix": [["a", "b"], ["c", "b"], ["a", "b"], ["b"]]},
    "numbers": {"shard_strategy": [["mp", [0, 2]], ["dp", [1]]], "shard_matrix": [["0", "1"], ["2", "1"], ["0", "1"], ["1"]]},
    "short_key": {"strategy": [["mp", ["a"]]], "shard_matrix": [["a"], []]},
}
SWEEPS = {
    "small": {"schema": "perfmodel-sweep", "version": 1,
              "graphs": [{"name": "small", "build": "mlp"}, {"build": "mlp", "options": {"hidden": 128, "relu": True}}],
              "rewrites": [{"batch": ["same", 8, "32"]}, {"sequence": ["128"]}], "gpus": ["a100-sxm-80gb", "H100"],
              "topologies": ["usual", "dgx-a100"], "models": "heuristic",
              "strategies": [{"strategy": "none"}, {"strategy": "ddp", "world": [2, 8]}, {"strategy": "fsdp", "world": 4}]},
    "least": {"schema": "perfmodel-sweep", "version": 1, "graphs": [{"build": "mlp"}], "gpus": ["t4"]},
}
EMBEDDING_TABLES = {"list": [{"table": "a", "rows": 1000, "dim": 128, "pooling": 1, "rank": -1},
                             {"rows": 4e7, "dim": 128, "pooling": 2.5}], "one": [{"rows": 1, "dim": 16, "pooling": 1}]}
REQUESTS = [{"id": 1, "op": "ping"}, {"id": "two", "op": "gpus"}, {"op": "stats"}, {"id": None, "op": "unload", "name": "g"},
            {"id": 3, "op": "predict", "graph": "g", "gpu": "a100-sxm-40gb", "batch": 4, "keep_ops": True},
            {"id": 4, "op": "explain", "graph": "g", "gpu": "h100-sxm-80gb", "world": 8, "strategy": "ddp", "interference": 1.5,
             "topology": "hgx-h100"}, {"id": 5, "op": "predict", "graph": "g", "gpu": "h100-sxm-80gb", "sequence": 7},
            {"id": 6, "op": "load", "name": "g", "file": "/nowhere"}]

# Changes of the graphs that the target itself builds.
REWRITES = {
    "threads": {"graph": "mlp_gpu", "changes": [{"node": 9, "thread": 7}], "rewrites": ["--optimizer adam"]},
    "parents": {"graph": "mlp_cpu", "changes": [{"node": 20, "parent": 9}], "rewrites": ["--retarget nvidia,pageable"]},
    "order": {"graph": "bert_gpu", "changes": [{"node": 40, "swap": 41}], "rewrites": ["--checkpoint 1"]},
    "orphans": {"graph": "mlp_gpu", "changes": [{"node": 12, "parent_id": -5}], "rewrites": ["--remove aten::relu"]},
    "names": {"graph": "resnet_cpu", "changes": [{"node": 30, "name": 12}, {"node": 31, "arguments": 11}],
              "rewrites": ["--retarget amd,on-device", "--precision bf16"]},
    "sizes": {"graph": "dlrm_gpu", "changes": [{"node": 15, "size": 3, "dtype": 6}, {"node": 16, "rank": 0}],
              "rewrites": ["--batch 2=6", "--fuse-tables sgd", "--fuse-elementwise"]},
    "autograd": {"graph": "bert_gpu", "changes": [{"node": 60, "sequence": 3, "fw_parent": 2, "scope": 1}],
                 "rewrites": ["--precision fp16-scaled", "--data-parallel 8,cap=1,views"]},
    "counts": {"graph": "dlrm_cpu", "changes": [{"node": 14, "inputs": 1, "outputs": 0}, {"node": 8, "device": 2}],
               "rewrites": ["--retarget nvidia", "--optimizer adamw/fused"]},
    "tensors": {"graph": "dlrm_gpu", "changes": [{"node": 14, "tensor": 9, "storage": 0}],
                "rewrites": ["--fuse-tables rowwise_adagrad", "--index-skew 1.05"]},
    "plain": {"graph": "mlp_gpu", "rewrites": ["--sequence 6", "--subgraph aten::*", "--kernel-time aten::mm=3"]},
    "memory": {"graph": "bert_gpu", "changes": [{"node": 60, "swap": 61}, {"node": 70, "tensor": 40, "storage": 41}],
               "rewrites": ["--in-place gelu,layernorm:1", "--recompute dropout", "--checkpoint 1,masks"]},
    "attention": {"graph": "bert_cpu", "changes": [{"node": 66, "thread": 7}],
                  "rewrites": ["--recompute selective:2", "--precision bf16"]},
    "encoder": {"graph": "bert_cpu", "rewrites": ["--precision bf16", "--checkpoint ##", "--scale-kernel aten::*=0.5"]},
} | {base: {"graph": base} for base in ("mlp_gpu", "mlp_cpu", "dlrm_gpu", "dlrm_cpu", "bert_gpu", "bert_cpu")}


# Graphs with what `memory` is asked about them, and with every rewrite.
BASES = [f"{model}_{device}" for model in ("mlp", "dlrm", "bert", "lstm", "gru", "resnet") for device in ("gpu", "cpu")]
MEMORY = {base: {"graph": base, "memory": {"world": 1 + 7 * (i % 2), "zero": i % 4, "expandable": i % 3}} for i, base in enumerate(BASES)}
EACH = {base: {"graph": base, "changes": [{"node": 20 + i, "swap": 30}]} for i, base in enumerate(BASES)}

LLAMA = {"architectures": ["LlamaForCausalLM"], "attention_bias": False, "hidden_act": "silu", "hidden_size": 512, "intermediate_size": 1376,
         "max_position_embeddings": 4096, "model_type": "llama", "num_attention_heads": 8, "num_hidden_layers": 4, "num_key_value_heads": 2,
         "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "vocab_size": 32000}
CONFIGS = {
    "llama": LLAMA, "qwen2": LLAMA | {"model_type": "qwen2", "sliding_window": 1024, "use_sliding_window": False},
    "mistral": LLAMA | {"model_type": "mistral", "sliding_window": 1024, "head_dim": 64},
    "mixtral": LLAMA | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2, "router_aux_loss_coef": 0.02},
    "qwen3_moe": LLAMA | {"model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256,
                          "decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": True, "head_dim": 64},
    "deepseek": LLAMA | {"model_type": "deepseek_v3", "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1,
                         "moe_intermediate_size": 256, "first_k_dense_replace": 1, "kv_lora_rank": 64, "q_lora_rank": 128,
                         "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64, "num_nextn_predict_layers": 1},
    "gpt2": {"model_type": "gpt2", "n_embd": 256, "n_layer": 2, "n_head": 4, "n_positions": 512, "n_ctx": 512, "vocab_size": 1000},
    "neox": {"model_type": "gpt_neox", "hidden_size": 256, "intermediate_size": 1024, "num_attention_heads": 4, "num_hidden_layers": 2,
             "max_position_embeddings": 512, "vocab_size": 1000, "hidden_act": "gelu"},
    "opt": {"model_type": "opt", "hidden_size": 256, "ffn_dim": 1024, "num_attention_heads": 4, "num_hidden_layers": 2,
            "max_position_embeddings": 512, "vocab_size": 1000, "word_embed_proj_dim": 256, "activation_function": "relu"},
}
MACHINE_COLUMNS = ["layers", "hidden", "heads", "kv_heads", "feed_forward", "gated", "vocabulary", "tied", "positions", "sequence",
                   "global_batch", "dp", "tp", "pp", "vp", "zero", "micro_batch", "recompute", "sequence_parallel", "precision",
                   "schedule", "software", "step_ms"]
MACHINE_ROWS = [["4", "512", "8", "8", "1376", "1", "32000", "0", "0", "512", "16", "4", "2", "1", "1", "none", "1", "none", "1",
                 "bf16", "1f1b", "megatron", ms] for ms in ("90", "80.5")]
MACHINE = {"schema": "perfmodel-measured-machine", "version": 1, "program": {}, "name": "machine", "gpu": "a100-sxm-80gb",
           "topology": "dgx-a100", "attention": "flash", "optimizer": "adamw", "grad_dtype": "fp32", "dropout": 0.0, "host_scale": 1.0,
           "source": "a table", "fit": {"steps": 2}, "columns": MACHINE_COLUMNS, "rows": MACHINE_ROWS}
LAYOUT_TABLES = {
    "machine": ",".join(MACHINE_COLUMNS) + "\n" + "".join(",".join(row) + "\n" for row in MACHINE_ROWS),
    "asked": "tp,dp,micro_batch,step_ms,compute_ms\n2,4,1,80,60\n4,2,1,70,\n",
    "speed": "layers,hidden,heads,vocabulary,sequence,global_batch,gpus,tp,pp,schedule,recompute,tokens_per_s_per_gpu\n"
             "4,256,4,1000,512,16,8,2,2,gpipe,full,9000\n4,256,4,1000,512,16,8,1,4,zb-h1,none,8000\n",
    "experts": "layers,hidden,heads,feed_forward,vocabulary,experts,top_k,expert_hidden,sequence,global_batch,gpus,ep,etp,tp,zero,step_ms\n"
               "4,256,4,512,1000,8,2,256,512,16,8,4,1,2,1,50\n",
    "context": "layers,hidden,heads,vocabulary,sequence,global_batch,gpus,cp,zero,precision,note\n4,256,4,1000,512,16,8,2,fsdp,fp8,\"a, b\"\n",
}
SYNC_FILES = {
    "cases": {"what": "two", "cases": [
        {"id": "a", "scheme": "bsp", "step_time": [1, 2], "commit_time": [0.5, 0.25], "rounds": 4},
        {"id": "b", "scheme": "ssp", "step_time": [1.0, 3], "commit_time": [0.5, 0], "s": 3, "horizon": 30},
        {"id": "c", "scheme": "adsp", "step_time": [1.0], "commit_time": [0.5], "check_period": 10, "commits_per_period": [2], "horizon": 50},
        {"id": "d", "scheme": "local_sgd", "step_time": [1.0], "commit_time": [0.5], "tau": 4, "rounds": 3}]},
    "measured": {"cases": [
        {"id": "m", "scheme": "BSP", "wall_s": 400, "total_steps": 300, "compute_s_per_worker_group": [100, 120, 90], "avg_blocked_s": 50},
        {"id": "n", "scheme": "SSP(s=3)", "wall_s": 300, "total_steps": 300, "compute_s_per_worker_group": [100, 120, 90], "avg_blocked_s": 5}]},
    "workers": {"schema": "perfmodel-sync-workers", "version": 1, "exchange": "servers", "servers": {"count": 2, "nic_gb_per_s": 1.25},
                "model_bytes": 1.0e8, "workers": [
                    {"name": "a", "count": 6, "step_us": 5000, "link_gb_per_s": 12.5},
                    {"name": "b", "step_us": 7000, "host_scale": 2, "link_gb_per_s": 1.25, "straggler": "pause:0.01:5"},
                    {"name": "c", "step_us": 9000, "commit_us": 400}]},
    "ring": {"schema": "perfmodel-sync-workers", "version": 1, "exchange": "all-reduce", "model_bytes": 1e6,
             "workers": [{"name": "a", "count": 4, "step_us": 10, "link_gb_per_s": 1, "straggler": "lognormal:0.2"}]},
    "loss": {"schema": "perfmodel-loss-model", "version": 1, "steps_to_target": 5420, "tau_cost": 0.0141, "staleness_cost": 0.0141,
             "first_loss": 1, "target_loss": 0.1, "limit_loss": 0, "source": "nowhere"},
}
SNAPSHOT = {
    "segments": [
        {"device": 0, "address": 4096, "total_size": 2097152, "blocks": [
            {"size": 1024, "requested_size": 1000, "address": 4096, "state": "active_allocated",
             "frames": [{"name": "load", "filename": "/home/x/model.py", "line": 12}]},
            {"size": 2096128, "address": 5120, "state": "inactive"}]},
        {"device": 0, "address": 8388608, "total_size": 20971520, "blocks": [{"size": 20971520, "address": 8388608, "state": "inactive"}]}],
    "device_traces": [[
        {"action": "segment_alloc", "addr": 4096, "size": 2097152, "time_us": 1000},
        {"action": "alloc", "addr": 4096, "size": 1000, "time_us": 1001},
        {"action": "segment_alloc", "addr": 8388608, "size": 20971520, "time_us": 1010},
        {"action": "alloc", "addr": 8388608, "size": 10000000, "time_us": 1011, "frames": [{"name": "forward", "filename": "m.py", "line": 40}]},
        {"action": "free_requested", "addr": 8388608, "size": 10000000, "time_us": 1020},
        {"action": "free_completed", "addr": 8388608, "size": 10000000, "time_us": 1021},
        {"action": "snapshot", "addr": 0, "size": 0, "time_us": 1030}]]}
ANONYMOUS = {
    "homes": "/home/alice/run/x.py\nC:\\Users\\bob\\a.txt ~carol/x /Users/dora\nalice and bob on ip-10-0-0-1\nroot@/root/ubuntu",
    "hosts": "node7.cluster.local_123.456.pt.trace.json\nhost=gpu-3 hostname: gpu-4, \"HOSTNAME\":\"gpu-5\"\n10.0.0.1 fe80::1 00:1b:44:11:3a:b7\n",
    "mails": "mail a.b+c@d-e.org, x@y\nA@B.C@D\nqvzkuser@qvzkuser.qvzkuser /home/qvzkuser\n",
}


def npy(kind: str, values: list, shape: str) -> bytes:
    head = "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }" % (kind, shape)
    head = head.ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + b"".join(struct.pack(
        "<q" if kind.endswith("8") else "<i", value) for value in values)


INDICES = {
    "npy": npy("<i8", [0, 3, 3, 9, 1], "5,"), "npy32": npy("<i4", [5, 5, 2, 0], "2, 2"), "csv": b"index\n0\n4\n4\n17\n",
    "histogram": b"reuse_gt,reuse_le,frac_unique_rows,frac_lookups\n0,1,0.6,0.2\n1,4,0.3,0.3\n4,,0.1,0.5\n",
    "tables": b"table,reuse_gt,reuse_le,frac_unique_rows,frac_lookups\na,0,1,0.6,0.2\na,1,,0.4,0.8\nb,0,,1,1\n",
}
# Output of commands with --json, as far as `report` draws it.
DOCUMENTS = {
    "whatif": {"schema": "perfmodel-whatif", "version": 1, "rows": [
        {"name": "</script><script>alert(1)</script>", "gpu": "a100", "e2e_us": 12.5, "fits": True}, {"name": "<!--", "gpu": "h100", "e2e_us": 7}]},
    "layout": {"schema": "perfmodel-layout", "version": 1, "layouts": [{"dp": 8, "tp": 1, "predicted_step_ms": 90, "low_ms": 80, "high_ms": 99, "fits": False}]},
    "memory": {"schema": "perfmodel-memory", "version": 1, "peak_bytes": 5, "largest": [{"made_by": "\u0000\"'><img src=x>", "bytes": 5}]},
}
REQUESTED = {
    "layout": {"command": "layout", "arguments": ["llama2-7b"], "options": {"gpu": "a100-sxm-80gb", "world": 8, "global_batch": 16, "dp": [4], "tp": [2]}},
    "layout_eval": {"command": "layout eval", "options": {"table": "@0.csv", "gpu": "a100-sxm-80gb", "measured": "@1.json", "output": "@out"}},
    "layout_config": {"command": "layout eval", "arguments": ["@0.json"], "options": {"gpu": "a100-sxm-80gb", "topology": "dgx-a100", "world": 8,
                      "global_batch": 16, "lora": 8, "precision": "bf16", "collectives": "@1.json"}},
    "memory": {"command": "memory", "arguments": ["@0.json"], "options": {"gpu": "a100-sxm-80gb", "world": 8, "zero": 2, "max_batch": True}},
    "sync": {"command": "sync", "options": {"workers": "@0.json", "target_updates": 50, "scheme": ["bsp", "ssp"], "loss_model": "@1.json"}},
    "sync_list": {"command": "sync", "options": {"workers": "a:3:5000:200,b:1:9000", "straggler": "lognormal:0.2", "tau": 4, "slowest": [1, 2]}},
    "gemm": {"command": "gemm", "arguments": [512, 384, 64], "options": {"gpu": "t4", "space": "simt2", "batch": 2, "explain": True, "models": "heuristic"}},
    "gpus": {"command": "gpus", "arguments": ["t4"]},
    "trace": {"command": "trace", "arguments": ["@0.json"], "options": {"anonymize": True, "salvage": True}},
    "analyze": {"command": "analyze", "arguments": ["@0.json"], "options": {"gpu": "a100-sxm-80gb", "models": "heuristic", "full": True}},
    "report": {"command": "report", "arguments": ["@0.json"], "options": {"output": "@out.html", "title": "<b>", "gpu": "t4"}},
    "rewrite": {"command": "rewrite", "arguments": ["@0.json"], "options": {"batch": "6", "optimizer": "adam/fused", "output": "@out"}},
    "predict": {"command": "predict", "arguments": ["@0.json"], "options": {"gpu": "h100-sxm-80gb", "world": 2, "strategy": "ddp", "full": True}},
    "whatif": {"command": "whatif", "arguments": ["@0.json"], "options": {"gpus": ["t4", "p4"], "batch": ["same", 8], "max_batch": True}},
    "optimize": {"command": "optimize", "arguments": ["@0.json"], "options": {"gpu": "t4", "time_budget": 0.2, "allow": ["precision", "optimizer"]}},
    "overheads": {"command": "overheads", "arguments": ["@0.json"], "options": {"output": "@out"}},
    "replay": {"command": "replay", "arguments": ["@0.json"]},
    "kernels": {"command": "kernels", "arguments": ["@0.csv"], "options": {"gpu": "t4", "output": "@out"}},
    "build": {"command": "build mlp", "options": {"batch": 4, "hidden": 8, "output": "@out"}},
    "shard": {"command": "shard eval", "arguments": ["@0.json"], "options": {"plan": "@1.json"}},
    "suite": {"command": "suite", "arguments": ["list"]}, "sweep": {"command": "sweep", "arguments": ["@0.json"], "options": {"output": "x"}},
    "help": {"command": "layout rank", "options": {"help": True}}, "odd": {"command": "predict\tx", "arguments": [None, 1.5, [True]], "options": []},
}


def ask_inputs(graph, trace) -> dict:
    table, machine = LAYOUT_TABLES["machine"], MACHINE
    files = {"layout_eval": [table, machine], "layout_config": [LLAMA, NETWORK], "sync": [SYNC_FILES["ring"], SYNC_FILES["loss"]],
             "kernels": [KERNEL_TABLES["gemm"]], "shard": [PLAIN, TORCHREC_PLANS["columns"]], "sweep": [SWEEPS["least"]],
             "report": [DOCUMENTS["whatif"]]} | {name: [trace] for name in ("trace", "overheads", "replay")}
    files |= {name: [graph] for name in ("memory", "analyze", "rewrite", "predict", "whatif", "optimize")}
    whole = {name: {"request": request} | ({"files": files[name]} if name in files else {}) for name, request in REQUESTED.items()}
    return whole | {"bare": REQUESTED["gemm"], "report_trace": {"request": REQUESTED["report"], "files": [trace]},
                    "list": [1, {"command": []}], "text": "predict"}


NETWORK = json.loads((HERE.parent.parent / "examples/collectives/astra-sim-h100.json").read_text())


def part(*members: str) -> bytes:
    return b"".join(gzip.compress(m.encode(), mtime=0) for m in members)


def serve_inputs(samples: Path) -> dict:
    lines = [json.dumps(request) for request in REQUESTS]
    graph = json.dumps(json.loads((samples / "et_three_steps.json").read_text()))
    load = '{"id": 0, "op": "load", "name": "g", "graph": %s}' % graph
    return {f"line_{i}": line.encode() for i, line in enumerate(lines)} | {
        "all": "\n".join(lines).encode(), "loaded": "\n".join([load, *lines[4:7]]).encode()}


def inputs(samples: Path) -> dict:
    """Target -> name -> bytes."""
    bad = [f for f in sorted(samples.glob("bad_*")) if f.suffix == ".json"]
    plain = lambda data: gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    graphs = {f.name: plain(f.read_bytes()) for f in [*sorted(samples.glob("et_*")), *bad]}
    traces = {f.name: f.read_bytes() for f in [*sorted(samples.glob("kineto_*")), *sorted(samples.glob("bad_*"))]}
    head = "# rows of a perfpredict sweep, version 1, fingerprint 0123456789abcdef\n"
    rows = part(head, "graph=a;gpu=t4,1.5,,\ngraph=b;gpu=t4,2.5,,\n", "graph=c;gpu=t4,,,refused\n")
    as_bytes = lambda documents: {name: text(document) for name, document in documents.items()}
    encoded = lambda texts: {name: t.encode() for name, t in texts.items()}
    files = lambda folder: {f.stem: f.read_bytes() for f in sorted((DATA / folder).glob("*.json"))}
    one_graph, one_trace = (json.loads((samples / name).read_text()) for name in ("et_three_steps.json", "kineto_launch_ahead.json"))
    return {
        "anonymize": encoded(ANONYMOUS), "sync_files": as_bytes(SYNC_FILES), "allocator_snapshot": as_bytes({"whole": SNAPSHOT}),
        "index_statistics": INDICES, "layout_table": encoded(LAYOUT_TABLES), "calibration": encoded(KERNEL_TABLES),
        "layout_files": as_bytes(CONFIGS | {"machine": MACHINE, "network": NETWORK}) | files("frameworks"),
        "report": as_bytes(DOCUMENTS) | {n: d for n, d in traces.items() if n.startswith("kineto_")},
        "ask": as_bytes(ask_inputs(one_graph, one_trace)), "memory": as_bytes(MEMORY), "each_rewrite": as_bytes(EACH),
        "execution_graph": graphs, "predict": {n: d for n, d in graphs.items() if n.startswith("et_")},
        "recording": {f"changes_{n}": bytes((n * 37 + i * i * 11) % 256 for i in range(96)) for n in range(8)},
        "trace": traces, "replay": {n: d for n, d in traces.items() if n.startswith("kineto_")},
        "chakra": chakra_inputs(), "gpu": files("gpus"), "architecture": files("architectures"), "topology": files("topologies"),
        "overheads": {f.stem: small_overheads(f) for f in sorted((DATA / "overheads/programs").glob("*.json"))},
        "kernel_models": {f.stem: small_model(f) for f in sorted((DATA / "models").glob("*.json"))},
        "kernel_table": encoded(KERNEL_TABLES), "graph_table": encoded(GRAPH_TABLES), "sharding_study": as_bytes(STUDIES),
        "sharding_tables": encoded(TABLES), "embedding_tables": as_bytes(EMBEDDING_TABLES),
        "torchrec_plan": as_bytes(TORCHREC_PLANS), "hugectr_plan": as_bytes(HUGECTR_PLANS), "sweep_spec": as_bytes(SWEEPS),
        "suite": files("suites"),
        "sweep_part": {"whole": rows, "torn": rows[:-9], "head": part(head), "torn_head": part(head)[:20],
                       "other": part(head.replace("0123", "4567"))},
        "serve_request": serve_inputs(samples),
        "rewrites": as_bytes(REWRITES) | {n: graphs[n] for n in ("et_hip.json", "et_three_steps.json", "et_triton_1.1.1.json")}}


def places(document, known: set) -> list:
    """The first place of each key of a document: lists of keys and positions."""
    items = document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    found = []
    for key, item in items:
        if key not in known:
            known |= {key} if isinstance(key, str) else set()
            found += ([[key]] if isinstance(key, str) else []) + [[key, *rest] for rest in places(item, known)]
    return found


def with_value(document, place: list, value):
    """A copy of the document with another value in that place."""
    if not place:
        return value
    copy = document.copy()
    copy[place[0]] = with_value(document[place[0]], place[1:], value)
    return copy


def hostile_texts() -> dict:
    """Texts that cost a careless reader its stack, its memory or its patience."""
    return {"deep_lists": b"[" * DEPTH + b"]" * DEPTH, "deep_objects": b'{"a":' * DEPTH + b"1" + b"}" * DEPTH,
            "open_lists": b"[" * DEPTH, "open_objects": b'{"a":' * DEPTH, "open_text": b'{"' + b"x" * LENGTH,
            "long_text": b'{"a": "%s"}' % (b"x" * LENGTH), "long_key": b'{"%s": 1}' % (b"k" * LENGTH),
            "long_number": b'{"a": 1%s}' % (b"0" * LENGTH), "escapes": b'["' + b"\\" * LENGTH + b'"]',
            "zeros": bytes(LENGTH), "quotes": b'"' * LENGTH, "lines": b"\n" * LENGTH, "comments": b"#\n" * LENGTH,
            "commas": b"," * LENGTH + b"\n", "packed": gzip.compress(bytes(LENGTH), mtime=0), "nothing": b""}


def odd_values(seed: bytes) -> dict:
    """A JSON document with something deep, or long, in place of each of its keys' values."""
    made = {}
    try:
        document = json.loads(seed)
    except ValueError:
        return made
    for i, place in enumerate(places(document, set())):
        made[f"deep_{i}"] = text(with_value(document, place, "DEEP")).replace(b'"DEEP"', b"[" * DEPTH + b"]" * DEPTH)
        made[f"long_{i}"] = text(with_value(document, place, "\x1b" + "x" * 5000))
    return made


def words(data: bytes) -> list:
    """Keys, short texts and column names, most frequent first."""
    plain = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    found = re.findall(rb'"[A-Za-z_ .:#/-]{1,30}"|[a-z_]{2,20}(?=[,\n])', plain)
    return list(dict.fromkeys(found))


def dictionary(seeds: dict) -> str:
    count = {}
    for name, data in seeds.items():
        for word in words(data) if not name.startswith(("bad_gzip", "torn")) else []:
            count[word] = count.get(word, 0) + 1
    best = sorted(count, key=lambda word: (-count[word], word))[:MOST_WORDS]
    return "".join('"%s"\n' % word.decode().replace("\\", "\\\\").replace('"', '\\"') for word in best)


def fill(folder: Path, contents: dict) -> list:
    """Makes these the files of a folder; returns them."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    return [folder / name for name in contents]


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("usage: make_inputs.py SAMPLES OUT")
    out = Path(sys.argv[2])
    fill(out / "data/architectures", {f.name: f.read_bytes() for f in (DATA / "architectures").glob("*.json")})
    fill(out / "data/gpus", {f"{gpu}.json": (DATA / f"gpus/{gpu}.json").read_bytes() for gpu in GPUS})
    for folder in ("frameworks", "overheads", "suites"):
        fill(out / "data" / folder, {f.name: f.read_bytes() for f in (DATA / folder).glob("*.json")})
    fill(out / "data/topologies", {f"{name}.json": (DATA / f"topologies/{name}.json").read_bytes() for name in TOPOLOGIES})
    (out / "data/fitted.json").write_bytes(small_model(DATA / "models/gemm-float32.json"))
    all_hostile = fill(out / "hostile/texts", hostile_texts())
    for target, seeds in inputs(Path(sys.argv[1])).items():
        files = fill(out / target, seeds) + fill(out / "hostile" / target, odd_values(min(seeds.values(), key=len)))
        files += all_hostile + sorted((HERE / "regressions" / target).glob("*"))
        (out / f"{target}.list").write_text(",".join(map(str, files)))
        (out / f"{target}.dict").write_text(dictionary(seeds))
    (out / "made").write_text("")


if __name__ == "__main__":
    main()
