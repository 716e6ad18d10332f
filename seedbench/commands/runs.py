"""`seedbench eval` and `table`: playing, and reading what was played."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tyro.conf import Positional

from seedbench.commands.common import OptFloat, OptInt, OptPath, OptStr, index_or_url
from seedbench.core import SeedbenchError

if TYPE_CHECKING:
    from seedbench.exam import Config


@dataclass(frozen=True)
class Eval:
    """Play an agent through frozen splits, every task once a trial, and write a result that can be replayed.

    The run folder keeps each episode as it ends. A killed run goes on with `seedbench eval --resume DIR`, which needs
    no other option and gives the bytes of an uninterrupted run (log-probabilities in tokens.jsonl.gz to rounding: other
    rows share their batch). `torchrun` and `accelerate launch` share the episodes out over processes and machines that
    see the same --out (docs/sharding.md).

    For example:

      seedbench eval --agent expert --env alfworld --split seen
      seedbench eval --agent ./my_checkpoint --env alfworld --split seen,unseen --temperature 0
      seedbench eval --agent random --env alfworld --data DIR --split paper --trials 4
      seedbench eval --agent openai:my-model@http://localhost:8000/v1 --env alfworld --temperature 0
    """

    agent: OptStr = None
    """random | null | expert | human | the folder or hub id of a Hugging Face causal language model | vllm:PATH (the
    same, played by vLLM) |
    openai:MODEL@URL (an OpenAI-compatible endpoint, its key in OPENAI_API_KEY, or user:password in OPENAI_BASIC_AUTH) |
    replay:RUN (the texts of a finished run) | module:factory (your own agent, from the current directory)."""
    env: str = "all"
    """Comma list of environments, or all."""
    split: str = "seen,unseen"
    """Comma list of train, dev, seen, unseen, paper; or all (which leaves out paper)."""
    data: str = "mini"
    """mini (embedded) or the folder with the published files: for ALFWorld the one that holds json_2.1.1, for WebShop
    the one with items_shuffle, for search-QA the one with the question files, or where it was imported."""
    trials: int = 1
    """How often each task is played."""
    limit: OptInt = None
    """Only the first N tasks of each split; the result is marked partial."""
    seed: int = 0
    """Seed of every random choice of the run."""
    out: OptPath = None
    """Run folder; by default runs/<time>_<agent>."""
    resume: OptPath = None
    """Finish the run in this folder; every other option is restored from it."""
    skill: str = "none"
    """none, or what the agent sees as a lesson under the task line: static (of the bank that comes with seedbench, by
    the kind of task; baselines/skills/bank) or the content of a text file."""
    parse: Literal["strict", "tolerant"] = "strict"
    """tolerant forgives case, spacing, articles, final punctuation and missing closing tags; recorded."""
    preset: str = "seedbench"
    """A protocol by name: sets step limit, history and sampling at once. ALFWorld and WebShop: seedbench, seed,
    verl-agent; search-QA, where it sets parser and reward too: seedbench, search-r1, search-r1-format, verl-agent;
    deep search: seedbench, tools, sspo, sspo-tools."""
    backend: Literal["fast", "textworld", "alfworld"] | None = None
    """ALFWorld's engine; by default fast."""
    retriever: OptStr = None
    """The search engine of search-QA and deep search: bm25 (the default), lucene, dense or hybrid over the passages
    that come with the questions, the folder of an index, or the URL of a `seedbench serve search`; deep search also
    takes live:module:factory@FOLDER."""
    top_k: OptInt = None
    """Passages that a search shows. Default: 3 of search-QA, 4 (mini) or 10 of deep search."""
    judge: OptStr = None
    """Deep search: MODEL@URL of an OpenAI-compatible endpoint that judges answers which are no exact match."""
    max_steps: OptInt = None
    """Step limit of an episode. Default: the environment's (ALFWorld: 14 on mini, 50 on published games; WebShop
    15; search-QA 8; deep search 16 on mini, else 50)."""
    history: OptInt = None
    """How many past steps the prompt shows, -1 for all. Default: the environment's (ALFWorld: 5, WebShop: 2,
    search-QA and deep search: all)."""
    temperature: OptFloat = None
    """Sampling temperature, 0 for greedy. Default 0.4, of deep search 0.6."""
    top_p: OptFloat = None
    """Nucleus sampling. Default 1, of deep search 0.95."""
    max_new_tokens: OptInt = None
    """Longest reply, in tokens. Default 512."""
    batch: int = 64
    """Episodes under way at a time, and rows of a generation batch."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, mps: where a local model runs."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Number format of a local model: auto is float32 on a CPU, bfloat16 on a GPU."""
    threads: int = 0
    """PyTorch's CPU threads; 0 chooses: one for the tiniest models, else PyTorch's own choice."""
    chat_template: OptPath = None
    """A jinja file, for a model that has no chat template of its own."""
    max_prompt_tokens: OptInt = None
    """Longest prompt of a local model: a longer one loses its oldest past steps, never task, lesson, observation or
    actions. Default: what the model's context leaves. Counted in run.json as cut_prompts; stated in the result."""
    selection: OptStr = None
    """How the checkpoint was chosen (last, dev); stated in the result. Never choose on a reported split."""

    server: OptStr = None
    """URL of a `seedbench serve` to play on instead of here; with --resume, where it is now if it has moved."""
    quiet: bool = False
    """Print no table at the end."""

    def __call__(self) -> None:
        from seedbench import evaluate, results, view
        from seedbench.shard import place

        if place().world > 1 and self.out is None and self.resume is None:
            raise SeedbenchError("--out is missing: several processes have to be told the folder that they share.")
        if self.resume is not None:
            if given := self._given() - {"resume", "server", "quiet"}:
                flags = ", ".join("--" + name.replace("_", "-") for name in sorted(given))
                raise SeedbenchError(f"--resume restores every option from the run folder: leave out {flags}.")
            out = evaluate.resume(self.resume, server=self.server)
        elif self.agent is None:
            raise SeedbenchError("--agent is missing: try `seedbench eval --agent random`, or go on with --resume DIR.")
        else:
            out = evaluate.evaluate(self.config(), self.out)
        if place().rank:
            return
        if not self.quiet:
            view.print_table([results.load(out)])
        print(f"{out}: {', '.join(name for name in evaluate.FILES if (out / name).exists())}")

    def _given(self) -> set[str]:
        return {f.name for f in fields(self) if getattr(self, f.name) != f.default}

    def config(self) -> Config:
        """The run's settings. A replay plays what its recording played, but for what is given here."""
        from seedbench import evaluate
        from seedbench.exam import Config

        names = {f.name for f in fields(Config)}
        options = {k: v for k, v in vars(self).items() if k in names}
        options["skill"] = self._skill()
        assert self.agent is not None
        kind, colon, run = self.agent.partition("replay:")
        # Absolute, so that the run can be resumed from any folder. (Not resolve(): it fails on loops of links.)
        if os.path.isdir(run if colon else kind):
            options["agent"] = colon + os.path.abspath(run if colon else kind)
        if self.chat_template is not None:
            options["chat_template"] = os.path.abspath(self.chat_template)
        options["retriever"] = index_or_url(self.retriever)
        if self.data != "mini":
            options["data"] = os.path.abspath(self.data)
        if colon:
            played = vars(evaluate.config_of(Path(run)))
            options |= {k: played[k] for k in names - self._given()}
        return Config(**options)

    def _skill(self) -> str:
        from seedbench import record
        from seedbench.exam import STATIC

        if self.skill in ("none", STATIC):
            return "" if self.skill == "none" else STATIC
        if (text := record.read_text(Path(self.skill), "--skill")) == STATIC:
            raise SeedbenchError(f"--skill {self.skill} says {STATIC!r} alone, which means the bank: write a lesson.")
        return text


@dataclass(frozen=True)
class Table:
    """One table over finished runs, each figure with its interval."""

    runs: Positional[tuple[Path, ...]]
    """Run folders."""

    def __call__(self) -> None:
        from seedbench import results, view

        if not self.runs:
            raise SeedbenchError("table needs the folders of finished runs, for example runs/*.")

        view.print_table([results.load(run) for run in self.runs])
