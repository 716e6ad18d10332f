"""The tiny policies' tokenizer: byte-level BPE over the words of the embedded environments, with a chat template.

Its texts are the prompts and replies of expert and random play on train tasks, so that the generated worlds' words are
single tokens and any other text can still be spelled out in bytes.

    python -m seedbench.baselines.tokenizer runs/tiny/tokenizer
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seedbench.agents import load_agent
from seedbench.baselines.skills import analysis
from seedbench.core import stream
from seedbench.exam import Config, plan
from seedbench.rollout import Episode, play

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
TAGS = ("<action>", "</action>", "<search>", "</search>", "<answer>", "</answer>", "<visit>", "</visit>", "<think>",
        "</think>")  # fmt: skip
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def build(out: Path, size: int = 1536, episodes: int = 150, seed: int = 0) -> Any:
    """Train and save it. `size` counts all tokens, the 256 bytes included."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE())
    # Words with their space, single digits, runs of marks: numbers such as "drawer 12" generalise digit by digit.
    words = Regex(r" ?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]+|\s+")
    raw.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(words, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(TAGS),
        special_tokens=[PAD, START, END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        min_frequency=8,
        show_progress=False,
    )
    raw.train_from_iterator(texts(episodes, seed), trainer)
    raw.add_tokens([AddedToken(tag, normalized=False) for tag in TAGS])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token=END, pad_token=PAD)
    tokenizer.add_special_tokens({"additional_special_tokens": [START, END]})
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(str(out))
    return tokenizer


def texts(episodes: int, seed: int) -> Iterator[str]:
    """What models read and say in `episodes` train tasks of each environment, by expert and by chance, lessons too."""
    for exam in plan(Config("random", env="all", split="train", seed=seed)):
        tasks = exam.tasks["train"]
        step = max(1, len(tasks) // episodes)
        rule = exam.make()
        for name in ("expert", "random"):
            agent = load_agent(name)
            games = (Episode(task, stream("tokenizer", seed), 0) for task in tasks[::step])
            for trajectory in play(exam.make, games, agent, slots=8, prompt=exam.prompt):
                for at in trajectory.steps:
                    yield at.view.messages[-1]["content"]
                    yield at.reply.text
                yield trajectory.steps[0].view.messages[0]["content"]
                if (lesson := rule.lesson(trajectory)) is not None:
                    yield analysis.messages(trajectory)[0]["content"]
                    yield analysis.dumps(lesson)


if __name__ == "__main__":
    build(Path(sys.argv[1]))
