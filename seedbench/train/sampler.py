"""Who plays the episodes of training: the model that is trained, or an engine beside it that is sent its weights.

An engine computes in other kernels, so its log-probabilities differ a little from the trainer's. Three things keep that
honest: after every push a few completions are scored by both and training stops where they disagree (`refresh`); the
ratio of the loss starts at 1 because its denominator is the trainer's own (`rescore`); and what remains is logged as
`gap`, and can be corrected for with --importance-cap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from seedbench.core import Message, SeedbenchError, stream
from seedbench.policy.checkpoint import Checkpoint
from seedbench.policy.decoding import Generation
from seedbench.policy.hf import HFPolicy
from seedbench.policy.vllm import Engine, VLLMPolicy, weights_of
from seedbench.train.args import Args
from seedbench.train.ranks import Ranks
from seedbench.train.rows import Row

PROBES, PROBE_TOKENS = 8, 16
# Mean difference of a token's log-probability above which weights did not arrive. In fp32 both are right to 1e-5; a
# stale output layer was off by 0.8 and more. In 16 bits two sound implementations differ by some 0.01.
TOLERANCE = {"float32": 1e-3, "bfloat16": 0.1, "float16": 0.05}


def open_sampler(args: Args, policy: HFPolicy, ranks: Ranks) -> Checkpoint:
    """The policy itself, or the engine that --engine names, still without its weights. Raises SeedbenchError."""
    if args.engine == "hf":
        return policy
    if ranks.world > 1:
        raise SeedbenchError("--engine vllm samples in one process only: start one, or leave out --engine.")
    if args.engine_url:
        from seedbench.policy.vllm_server import VLLMServer

        return VLLMServer(args.engine_url, policy, Path(args.out) / "engine", batch=args.slots)
    on_gpu = policy.model.device.type == "cuda"
    return VLLMPolicy.beside(
        policy, batch=args.slots, threads=args.threads, memory=args.engine_memory, sleeps=args.engine_sleep and on_gpu
    )


def refresh(
    sampler: Checkpoint, policy: HFPolicy, args: Args, first_prompt: Callable[[], Sequence[Message]]
) -> dict[str, float]:
    """Send an engine the policy's weights and compare the two; `probe` is their mean difference in log-probability.

    `first_prompt` gives an environment's first one: it and shorter beginnings of it are continued. Raises
    SeedbenchError where the engine does not say what the policy would.
    """
    if not isinstance(sampler, Engine):
        return {}
    sampler.push(weights_of(policy.model))
    whole = policy.encode(first_prompt())
    prompts = [whole[: max(1, len(whole) * (i + 1) // PROBES)] for i in range(PROBES)]
    said = sampler.generate(
        prompts,
        streams=[stream("probe", i) for i in range(PROBES)],
        temperature=args.temperature,
        max_new_tokens=PROBE_TOKENS,
    )
    spoken = [g for g in said if isinstance(g, Generation)]
    if len(spoken) < len(said):
        raise next(g for g in said if isinstance(g, SeedbenchError))
    scored = policy.logprobs(prompts, [g.completion_ids for g in spoken], temperature=args.temperature)
    mean, worst = gap([g.logprobs for g in spoken], scored)
    limit = TOLERANCE[str(policy.model.dtype).removeprefix("torch.")]
    if not mean <= limit:
        raise SeedbenchError(
            f"vLLM does not play the weights that are trained: after they were sent, log-probabilities differ by "
            f"{mean:.3g} on average and {worst:.3g} at most (allowed: {limit:g} on average), so training stopped; this "
            "version of vLLM does not take in all weights of this model, so leave out --engine."
        )
    return {"probe": mean}


def rescore(rows: Sequence[Row], sampler: Checkpoint, policy: HFPolicy, temperature: float) -> dict[str, float]:
    """Set logp_old to the trainer's own log-probabilities, so that ratios start at 1 whoever has sampled.

    The sampler's stay in logp_sampled; how far the two lie apart is returned, over all tokens of the batch.
    """
    if sampler is policy or not rows:
        return {}
    scored = policy.logprobs([r.prompt_ids for r in rows], [r.completion_ids for r in rows], temperature=temperature)
    for row, values in zip(rows, scored, strict=True):
        row.logp_old = values
    mean, worst = gap([r.logp_sampled for r in rows], scored)
    return {"gap": mean, "gap_max": worst}


def gap(some: Sequence[Sequence[float]], others: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Mean and largest absolute difference, over all tokens; NaN where one is not a number."""
    apart = np.abs(np.concatenate([np.subtract(a, b) for a, b in zip(some, others, strict=True)]))
    return float(apart.mean()), float(apart.max())
