"""Settings of supervised fine-tuning."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from seedbench.core import SeedbenchError
from seedbench.train.args import settings


@dataclass(frozen=True)
class SftArgs:
    """Settings of one run; written to train.json."""

    page: ClassVar[str] = "sft"

    env: str = "alfworld"
    """Which environment, by its short name."""
    model: str = "fresh"
    """fresh (a new tiny policy), tiny (the shipped one), a folder or a hub id."""
    out: str = ""
    """Folder to fill: a Hugging Face model folder, metrics.jsonl, checkpoints."""
    data: str = "mini"
    """mini, or the folder of published files."""
    preset: str = "seedbench"
    """The environment's protocol by name, as in `seedbench eval`: what the prompts look like."""
    demonstrations: int | None = None
    """Train tasks that the expert plays; by default all."""
    examples: str = ""
    """File of further rows, JSON lines of messages and completion, as `seedbench skills export` writes them (stage 1 of
    SEED); with --demonstrations 0 they are all that is learned."""
    trials: int = 1
    """Episodes of each."""
    stumble: float = 0.0
    """Largest chance, drawn for each episode, that a random action is played in the place of the expert's; what is
    learned is the expert's actions alone, then also from states that it would not come to by itself."""
    lessons: bool = False
    """Also learn to write a lesson from each episode, and to play the task again with that lesson in the prompt."""
    evidence: bool = False
    """Also learn to play each task with its evidence anchors in the prompt, as SSPO's teacher is told them, every other
    time with a wrong answer besides: a policy from scratch cannot read them otherwise, and has nothing to teach.
    The expert then goes by what it was told, as a reader would (deep search: straight to the last page named)."""
    longest: int = 1024
    """Tokens of a row; longer ones are left out, and counted in what is printed."""
    copy_first: int = 0
    """Updates before all others on random tokens in which spans come again, to teach a policy from scratch to copy
    names that it never saw. It comes as a jump: with 32 rows after some 650 of 1500, and not at all within 900."""
    whole: int = 0
    """Updates at the beginning whose loss is over prompts too: a policy from scratch learns there to copy."""
    updates: int = 1000
    """Optimizer steps."""
    rows: int = 16
    """Rows a step."""
    seed: int = 0
    """Seed of a fresh policy's weights, of the tasks chosen and of the order of rows."""
    lr: float = 3e-3
    """Peak learning rate of AdamW: for a tiny policy from scratch; SEED's stage 1 at 1.7-7 B has 5e-6."""
    warmup: float = 0.05
    """Share of the steps over which the rate rises; it then falls to a tenth along a cosine."""
    save_every: int = 200
    """Steps between checkpoints that --resume goes on from."""
    device: str = "auto"
    """auto, cpu or cuda."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of the arithmetic; auto is float32 on a CPU and bfloat16 on a GPU. Weights and moments are float32: steps of a
    small rate would be rounded away in bfloat16."""
    threads: int = 0
    """PyTorch's CPU threads; 0 chooses."""
    thinking: bool = True
    """off: as in the other pages, the chat template's thinking mode is switched off (Qwen3)."""

    def __post_init__(self) -> None:
        for name, low in (
            ("updates", 1),
            ("rows", 1),
            ("seed", 0),
            ("save_every", 1),
            ("trials", 1),
            ("longest", 1),
            ("whole", 0),
        ):
            if getattr(self, name) < low:
                raise SeedbenchError(f"--{name.replace('_', '-')} is {getattr(self, name)}: it must be {low} or more.")
        if self.demonstrations is not None and self.demonstrations < (0 if self.examples else 1):
            raise SeedbenchError(
                f"--demonstrations is {self.demonstrations}: it must be 1 or more, or 0 where --examples names a file."
            )
        if not 0 <= self.lr < math.inf:
            raise SeedbenchError(f"--lr is {self.lr}: give a finite number from 0 up.")
        if not 0 <= self.warmup <= 1:
            raise SeedbenchError(f"--warmup is {self.warmup}: it is a share from 0 to 1.")
        if not 0 <= self.stumble < 1:
            raise SeedbenchError(f"--stumble is {self.stumble}: it is a chance from 0 to below 1.")

    def dumps(self) -> str:
        """What train.json holds."""
        return json.dumps({"page": self.page, **dataclasses.asdict(self)}, indent=1) + "\n"

    @classmethod
    def load(cls, path: Path, kind: str = "--resume") -> SftArgs:
        """Read train.json or a recipe, as `Args.load` does."""
        return cls(**settings(cls, path, kind))
