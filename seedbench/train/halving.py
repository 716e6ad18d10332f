"""The passes of one optimizer step, in as little memory as there is: out of memory halves what a pass holds."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence

from seedbench.core import InfrastructureError
from seedbench.policy.hf import HFPolicy, out_of_memory
from seedbench.train.rows import Row, passes


def in_passes(
    policy: HFPolicy, rows: Sequence[Row], budget: int, work: Callable[[list[Row]], None], undo: Callable[[], None]
) -> int:
    """`work` on all rows, at most `budget` tokens at a time; returns the budget that was enough.

    After running out of memory `undo` drops what the passes so far added up (gradients, sums), and all begin again with
    half the budget, which changes speed and not the update. Raises InfrastructureError when one row is too much.
    """
    while True:
        some: list[Row] = []
        try:
            for some in passes(rows, budget, policy.packed):
                work(some)
            return budget
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
        # Outside the handler, whose traceback holds the tensors that are to be freed.
        if len(some) == 1:
            longest = len(some[0].prompt_ids) + len(some[0].completion_ids)
            raise InfrastructureError(
                f"{policy.model.device} has too little memory for the update with one row of {longest} tokens; use a "
                "smaller model, a lower --history or --max-new-tokens, --dtype bfloat16, or --device cpu."
            )
        undo()
        # Half of what the pass held, which may be far below the budget.
        held = len(some) * max(len(row.prompt_ids) + len(row.completion_ids) for row in some)
        budget = max(1, min(budget, held) // 2)
        gc.collect()
        if policy.model.device.type == "cuda":
            import torch

            torch.cuda.empty_cache()
