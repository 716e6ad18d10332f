#!/bin/sh
# The commands that made the tiny policy of ALFWorld: some 35 CPU-minutes with one thread. Weights follow from seeds,
# machine and version of torch. What ships was made while the code grew, and these commands now give a policy that is
# alike and not equal: the tokenizer at ffbbbf8 (before WebShop and search-QA had lessons to learn words from), words at
# 0f23faf, alfworld at 395a85a (before fine-tuning dealt its rows in an order of its own).
#   sh baselines/tiny/make.sh runs/tiny
set -eu
out=${1:-runs/tiny}
export OMP_NUM_THREADS=1
here=$(dirname "$0")

python -m seedbench.baselines.tokenizer "$out/tokenizer"
seedbench data generate alfworld "$out/rules" --level 0 --seed 1 --train 1500

# First to copy: for 700 updates the loss is over prompts too. Then to act.
seedbench train sft --env alfworld --data "$out/rules" --model fresh --lessons --stumble 0.9 --whole 700 --updates 2000 \
    --out "$out/words"
seedbench train sft --env alfworld --data "$out/rules" --model "$out/words" --lessons --stumble 0.7 --updates 1500 \
    --lr 2e-3 --out "$out/alfworld"
echo "compare $out/alfworld with $here/alfworld"
