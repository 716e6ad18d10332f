#!/usr/bin/env bash
# The trainers' update on a GPU, in under eight minutes: checked against the CPU at small size, then timed at 0.5, 1.5
# and 3 B parameters (random weights, bf16, SDPA attention, activation checkpointing).
#
#   benchmarks/gpu_check.sh             # exits 1 where there is no GPU
#   benchmarks/gpu_check.sh --cpu-dry   # the whole script at tiny size on the CPU
set -euo pipefail
cd "$(dirname "$0")/.."
export HF_HUB_OFFLINE=1 CUBLAS_WORKSPACE_CONFIG=:4096:8
exec timeout 480 "${PYTHON:-python}" benchmarks/gpu_check.py "$@"
