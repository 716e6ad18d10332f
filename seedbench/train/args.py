"""Every setting of a training run, with the source of its default. One object, written to train.json as it is."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, get_type_hints

from pydantic import TypeAdapter, ValidationError

from seedbench.core import SeedbenchError

Scope = Literal["traj", "rows"]
Norm = Literal["mean_std", "mean"]


@dataclass(frozen=True)
class Args:
    """Settings of one run. Defaults are the laptop's; papers' values come with a recipe (baselines/recipes)."""

    page: ClassVar[str] = "grpo"  # which algorithm's; train.json says it, so that --resume can tell runs apart

    env: str = "alfworld"
    """Which environment, by its short name."""
    model: str = "tiny"
    """fresh (a new tiny policy), tiny (the shipped one), a folder or a hub id."""
    out: str = ""
    """Folder to fill: a Hugging Face model folder, metrics.jsonl, curves.png, checkpoints."""
    data: str = "mini"
    """mini, or the folder of published files."""
    preset: str = "seedbench"
    """The environment's protocol by name, as in `seedbench eval`; sampling is still set here."""
    updates: int = 40
    """Updates: one batch of episodes and one pass over its rows each. The papers do 150."""
    seed: int = 0
    """Seed of the task order and of every sampled token."""
    tasks: int = 8
    """Tasks (groups) an update. Papers: 16 on ALFWorld and WebShop, 128 on search-QA."""
    task_share: float = 1.0
    """Share of the training tasks that are used, drawn by the seed (SEED's paper has 0.2 to 1)."""
    group: int = 8
    """Episodes of each task: what an advantage is relative to. Papers: 8."""
    lr: float = 3e-4
    """Peak learning rate of AdamW. Papers: 1e-6 at 1.7-7 B parameters; a tiny policy needs more."""
    warmup: float = 0.0
    """Share of the updates over which the rate rises from 0. SEED's table says 0.1, its scripts 0."""
    weight_decay: float = 0.01
    grad_clip: float = 1.0
    """Largest gradient norm of a step."""
    mini_batches: int = 1
    """Optimizer steps an epoch: the rows are dealt into so many parts, equal to a row."""
    mini_batch_rows: int = 0
    """Rows of an optimizer step, about: the rows are then dealt into as many equal parts as come nearest to it, and
    mini_batches does not count. Papers: 256 on ALFWorld, 64 on WebShop, 512 on search-QA."""
    deal_seed: int = 0
    """Of the deal of rows into mini-batches, beside --seed: another one changes that and nothing else (ours, for an A/A
    control: the same algorithm run twice)."""
    epochs: int = 1
    """Passes over a batch's rows. Papers: 1."""
    layout: Literal["rows", "packed"] = "rows"
    """rows: every step is a row of its own. packed: rows whose prompt goes on where the step before ended (chats) are
    read as one sequence a trajectory; changes memory and speed, not the update."""
    token_budget: int = 16384
    """Tokens of one forward and backward pass, padding counted; changes memory and speed, not the update."""
    clip: float = 0.2
    """epsilon: the ratio is cut at 1 - clip."""
    clip_high: float | None = None
    """The ratio is cut at 1 + clip_high; by default clip. DAPO: 0.28."""
    dual_clip: float = 3.0
    """c: a negative advantage costs at most c times itself (verl's default in the papers' code); 0 leaves it out."""
    kl: float = 0.0
    """Weight of the k3 estimate of KL to the starting model. Papers: 0.01, search-QA 0.001."""
    entropy: float = 0.0
    """Weight of the entropy bonus. Papers' code: 0.001, search-QA 0."""
    adv_scope: Scope = "traj"
    """traj: mean and deviation over the group's trajectories (the papers' text). rows: over all step rows, penalty
    included, so that long episodes weigh more (the papers' code)."""
    adv_norm: Norm = "mean_std"
    """mean_std, or mean without the division (the papers' WebShop scripts)."""
    invalid_penalty: float = 0.1
    """Taken from a row whose reply could not be read. Papers: 0.1, search-QA 0.01."""
    reward: Literal["success", "score"] = "success"
    """success: 1 if won. score: the environment's partial credit."""
    reward_scale: float = 1.0
    """Factor on the reward. Papers: 10 on ALFWorld and WebShop."""
    importance_cap: float = 0.0
    """Truncated importance correction: weigh tokens by min(trainer's probability / sampler's, cap); 0 leaves it out."""
    temperature: float = 1.0
    """Of the rollouts, and of every log-probability that is trained on."""
    max_new_tokens: int = 64
    max_steps: int | None = None
    """Step limit of an episode; by default the environment's."""
    history: int | None = None
    """Past steps in a prompt; by default the environment's."""
    slots: int = 64
    """Episodes under way at a time."""
    engine: Literal["hf", "vllm"] = "hf"
    """What samples: the model that is trained, or vLLM beside it (docs/vllm.md)."""
    engine_url: str = ""
    """With vllm: the URL of a `vllm serve` to sample from; by default vLLM runs in the training process."""
    engine_memory: float = 0.4
    """With vllm in this process: the share of a GPU's memory that it takes."""
    engine_sleep: bool = True
    """With vllm in this process: let it give its GPU memory back while the model is updated."""
    max_prompt_tokens: int | None = None
    """Longest prompt: a longer one loses its oldest past steps, never task, lesson, observation or actions; counted
    as cut_prompts. Default: what the model's context leaves. Papers: 2048 on ALFWorld, 4096 on the others."""
    resample: int = 0
    """Rounds an update in which groups whose rewards are all alike, and so teach nothing, are replaced by new tasks
    (DAPO's dynamic sampling, arXiv 2503.14476, with a bound); what was played and replaced is counted as resampled."""
    lora_rank: int = 0
    """Rank of LoRA matrices in every linear layer, which alone are trained; 0 trains all weights. The reference is
    the same model without them."""
    lora_alpha: float = 0.0
    """The matrices' product counts alpha / rank times; 0 stands for twice the rank."""
    shard: bool = False
    """FSDP2: each process holds a part of weights, gradients and moments. accelerate's FSDP config sets it too."""
    activation_checkpointing: bool = False
    """Compute each layer again in the backward pass: a third more arithmetic, a small share of the memory."""
    track: Literal["none", "tensorboard", "wandb"] = "none"
    """Where the curves go besides metrics.jsonl."""
    save_every: int = 10
    """Updates between checkpoints that --resume goes on from."""
    device: str = "auto"
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of the model's arithmetic; auto is float32 on a CPU and bfloat16 on a GPU. Beside bfloat16 weights the optimizer
    keeps its own in float32."""
    threads: int = 0
    """PyTorch's CPU threads; 0 chooses."""
    thinking: bool = True
    """off: the chat template's own thinking mode is switched off, also in the folder that is saved (Qwen3; so SEED's
    runs of Qwen3-1.7B)."""

    def __post_init__(self) -> None:
        least = {"updates": 0, "seed": 0, "tasks": 1, "group": 1, "mini_batches": 1, "epochs": 1, "token_budget": 1,
                 "max_new_tokens": 1, "slots": 1, "save_every": 1,
                 "threads": 0, "resample": 0, "lora_rank": 0, "mini_batch_rows": 0, "deal_seed": 0,
                 "max_prompt_tokens": 1}  # fmt: skip
        for name, low in least.items():
            if (value := getattr(self, name)) is not None and value < low:
                raise SeedbenchError(f"--{name.replace('_', '-')} is {getattr(self, name)}: it must be {low} or more.")
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, float) and not (0 <= value < math.inf):
                raise SeedbenchError(f"--{field.name.replace('_', '-')} is {value}: give a finite number from 0 up.")
        if self.max_steps is not None and self.max_steps < 1:
            raise SeedbenchError(f"--max-steps is {self.max_steps}: it must be 1 or more.")
        if self.history is not None and self.history < 0:
            raise SeedbenchError(f"--history is {self.history}: it must be 0 or more.")
        if not self.temperature:
            raise SeedbenchError("--temperature is 0: training samples its episodes, so give a number above 0.")
        if not 0 < self.task_share <= 1:
            raise SeedbenchError(f"--task-share is {self.task_share}: it is a share above 0, of 1 at most.")
        if self.engine_memory > 1 or not self.engine_memory:
            raise SeedbenchError(f"--engine-memory is {self.engine_memory}: it is a share above 0, of 1 at most.")
        if self.engine_url and self.engine != "vllm":
            raise SeedbenchError("--engine-url names a vLLM server: add --engine vllm, or leave it out.")
        if self.resample and self.group < 2:
            raise SeedbenchError(f"--resample is {self.resample} but a group of one has no spread: raise --group.")
        if self.deal_seed and self.mini_batches == 1 and not self.mini_batch_rows:
            raise SeedbenchError("--deal-seed deals rows otherwise, and there is one mini-batch: raise --mini-batches.")
        if self.clip >= 1:
            raise SeedbenchError(f"--clip is {self.clip}: it must be below 1, as ratios are positive.")

    @property
    def reads(self) -> dict[str, str]:
        """Files whose content takes part in every update, by the setting that names them."""
        return {}

    @property
    def teacher_sync(self) -> int:
        """Updates between copies of the weights that re-score what hindsight tells; 1: always the batch's own."""
        return 1

    def hears(self, advantage: float) -> bool:
        """Whether a row with this advantage is scored again where hindsight has a hint for it."""
        return True

    @property
    def unmeasured(self) -> dict[str, float]:
        """What the log says where no row of an update had anything to measure: the values that change nothing."""
        return {}

    @property
    def teaches(self) -> bool:
        """Whether a row without advantage has a gradient where hindsight has scored it."""
        return False

    def shares(self, update: int) -> bool:
        """Whether to measure at this update how large the gradient of the objective's own part is."""
        return False

    def dumps(self) -> str:
        """What train.json holds."""
        return json.dumps({"page": self.page, **dataclasses.asdict(self)}, indent=1) + "\n"

    @classmethod
    def load(cls, path: Path, kind: str = "--resume") -> Args:
        """Read train.json or a recipe. Raises SeedbenchError for a file that is not one, or a setting that is none."""
        return cls(**settings(cls, path, kind))


def settings(cls: type, path: Path, kind: str) -> dict[str, Any]:
    """The fields of the dataclass `cls` that a file names, each of its type. Raises SeedbenchError."""
    try:
        given: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise SeedbenchError(f"{kind} {path} cannot be read ({error}): name a file of settings.") from error
    known = {f.name for f in fields(cls)}
    if isinstance(given, dict):
        given.pop("page", None)
    if not isinstance(given, dict) or (strange := sorted(set(given) - known)):
        what = f"settings that there are not ({', '.join(strange)})" if isinstance(given, dict) else "no object"
        raise SeedbenchError(f"{kind} {path} holds {what}.")
    hints = get_type_hints(cls)
    for name, value in given.items():
        try:
            TypeAdapter(hints[name]).validate_python(value, strict=True)
        except ValidationError as error:
            wanted = error.errors()[0]["msg"].removeprefix("Input should be ")
            shown = json.dumps(value)[:60]
            raise SeedbenchError(f"{kind} {path} has {shown} for {name}: it should be {wanted}.") from error
    return given
