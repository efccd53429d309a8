#!/bin/bash
# After Megatron-LM's examples: a GPT-3 of 175 B parameters.
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NUM_NODES=${NUM_NODES:-16}
MASTER_ADDR=localhost
WORLD_SIZE=$(($GPUS_PER_NODE*$NUM_NODES))
TP=8
PP=16
DATA_PATH="$1"

DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NUM_NODES
    --master_addr $MASTER_ADDR
)
GPT_MODEL_ARGS=(
    --num-layers 96   # decoder
    --hidden-size 12288
    --num-attention-heads 96
    --seq-length 2048
    --max-position-embeddings 2048
    --attention-backend auto
)
TRAINING_ARGS="
    --micro-batch-size 1
    --global-batch-size 1536
    --train-iters 500000
    --weight-decay 0.1
    --adam-beta1 0.9
    --fp16
    --lr 6.0e-5
    --lr-decay-style cosine
    --use-distributed-optimizer
    --recompute-granularity full --recompute-method uniform --recompute-num-layers 1
"
MODEL_PARALLEL_ARGS="--tensor-model-parallel-size ${TP} --pipeline-model-parallel-size $PP \
    --sequence-parallel --num-layers-per-virtual-pipeline-stage 3"

torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \
    ${GPT_MODEL_ARGS[@]} \
    $TRAINING_ARGS \
    $MODEL_PARALLEL_ARGS \
    --data-path $DATA_PATH --split 949,50,1 --tokenizer-type GPT2BPETokenizer \
    --log-interval 100 --some-new-flag 3 2>&1 | tee log.txt
