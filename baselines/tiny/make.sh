#!/bin/sh
# The commands that made the tiny policies: about 70 CPU-minutes with one thread each. Weights follow from seeds, machine
# and version of torch. What ships was made while the code grew, and these commands now give policies that are alike and
# not equal: the tokenizer at ffbbbf8 (before WebShop and search-QA had lessons to learn words from), words at 0f23faf,
# the others at 395a85a (before fine-tuning dealt its rows in an order of its own).
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
seedbench train sft --env webshop --model "$out/words" --lessons --stumble 0.6 --whole 300 --updates 1500 --lr 2e-3 \
    --out "$out/webshop"
seedbench train sft --env searchqa --model "$out/alfworld" --lessons --stumble 0.6 --whole 250 --updates 800 --lr 2e-3 \
    --out "$out/searchqa"

echo "compare with $here, then copy config.json, generation_config.json and model.safetensors of each there"
