"""A causal language model of transformers as a policy: encode, generate, score, save.

Token in, token out: a prompt is encoded once through the model's own chat template, and what was sampled is handed on
as ids and log-probabilities, never encoded again.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from seedbench.core import InfrastructureError, Sampling, SeedbenchError
from seedbench.policy import chat, loading, weights
from seedbench.policy.checkpoint import Checkpoint
from seedbench.policy.decoding import Generation, Net, completion_logits, decode, token_logprobs
from seedbench.policy.packing import pack, packed_logits
from seedbench.policy.prefill import by_budget
from seedbench.policy.sampling import tempered, uniforms

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")
_LOGIT_CELLS = 1 << 28  # 1 GiB of fp32 logits at once when scoring


class HFPolicy(Checkpoint):
    """`max_rows` prompts decode at once, and prompts are read `token_budget` tokens at a time; both may be changed."""

    def __init__(self, model: Any, tokenizer: Any, folder: Path | None = None):
        super().__init__(model, tokenizer, folder)
        self.token_budget = 16384
        self.packed = False  # score rows that go on where another ended as one sequence
        self._net = Net(model)
        self._pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0

    @classmethod
    def load(
        cls,
        path_or_hub_id: str | Path,
        *,
        device: str = "auto",
        dtype: str = "auto",
        chat_template: str | None = None,
        threads: int = 0,
        thinking: bool = True,
    ) -> HFPolicy:
        """Load a model folder, or a hub id that is cached or can be downloaded. Safetensors only, no remote code.

        `device` auto is cuda where there is one; `dtype` auto is float32 on a CPU and bfloat16 on a GPU;
        `chat_template` is the path of a jinja file that replaces the tokenizer's own; `threads` is torch's number of
        threads on a CPU, for the whole process (0: one below 1M parameters, where more lose time; else torch's own
        choice); without `thinking`, see chat.without_thinking. Raises SeedbenchError.
        """
        loading.require_train()
        import torch

        loading.check_threads(threads)
        folder = loading.find_folder(str(path_or_hub_id))
        model = loading.load_model(folder, device, dtype)
        tokenizer = chat.load_tokenizer(folder, chat_template)
        if not thinking:
            chat.without_thinking(tokenizer)
        chat.check_vocabulary(folder, model, tokenizer)
        if model.device.type == "cpu" and (threads or model.num_parameters() < 1_000_000):
            torch.set_num_threads(threads or 1)
        policy = cls(model, tokenizer, folder)
        policy._try_out()
        return policy

    def _try_out(self) -> None:
        """Continue one token by two, so that a model that loads but cannot run fails here and not in every episode."""
        try:
            self._attempt(
                1, decode, self._net, [[0]], None, Sampling(0.0, 1.0, 2), frozenset(), self._pad, self.token_budget
            )
        except SeedbenchError:
            raise
        except Exception as e:  # configs are foreign input, and what they make transformers raise is not specified
            raise SeedbenchError(
                f"The model in {self.folder} loads but cannot run ({weights.why(e)}); check its config.json."
            ) from e

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        streams: Sequence[int],
        temperature: float = 1.0,
        top_p: float = 1.0,
        max_new_tokens: int = 512,
    ) -> list[Generation | SeedbenchError]:
        """Continue each prompt, drawing row i from the random stream streams[i]; temperature 0 is greedy.

        A prompt that cannot be continued (empty, too long for the model, logits that are not finite) has a
        SeedbenchError in its place and disturbs no other. Out of memory halves the batch and stays halved; with one
        row it raises InfrastructureError. Greedy log-probabilities are those at temperature 1.
        """
        sampling = Sampling(temperature, top_p, max_new_tokens)
        found: dict[int, Generation | SeedbenchError] = {}
        for i, prompt in enumerate(prompts):
            if problem := self._problem(prompt, max_new_tokens):
                found[i] = problem
        order = sorted((i for i in range(len(prompts)) if i not in found), key=lambda i: -len(prompts[i]))
        while order:
            rows = order[: self.max_rows]
            u = None if temperature == 0 else uniforms([streams[i] for i in rows], max_new_tokens)
            asked = [prompts[i] for i in rows]
            some = self._attempt(
                len(rows), decode, self._net, asked, u, sampling, self.stop_ids, self._pad, self.token_budget
            )
            if some is not None:
                found.update(zip(rows, some, strict=True))
                order = order[len(rows) :]
        return [found[i] for i in range(len(prompts))]

    def logprobs(
        self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], *, temperature: float = 1.0
    ) -> list[list[float]]:
        """Natural-log probabilities of given completion ids at `temperature` (0 scores at 1), top-p 1.

        NaN where the logits are not finite. Raises SeedbenchError for an empty prompt or a row that is too long.
        """
        Sampling(temperature)

        def work(asked: list[Sequence[int]], given: list[Sequence[int]], rows: list[int]) -> list[list[float]]:
            return [v.tolist() for v in token_logprobs(self._net, asked, given, temperature, self._pad, self._read)]

        scored = self._in_batches(prompts, completions, work, self.packed)
        return [scored.get(i, []) for i in range(len(prompts))]

    def examine(
        self,
        prompts: Sequence[Sequence[int]],
        completions: Sequence[Sequence[int]],
        look: Callable[[Any, Any, list[int]], list[T]],
    ) -> dict[int, T]:
        """`look` at the logits that predict given completions; what it gave, by row (rows without tokens left out).

        A batch is shown as `look(logits (N, V), ids (N,), rows)`: the N tokens of the completions of `rows`, one row
        after the other; it answers once a row. Raises SeedbenchError for an empty prompt or a row that is too long.
        """

        def work(asked: list[Sequence[int]], given: list[Sequence[int]], rows: list[int]) -> list[T]:
            return look(*completion_logits(self._net, asked, given, self._pad), rows)

        return self._in_batches(prompts, completions, work)

    def _in_batches(
        self,
        prompts: Sequence[Sequence[int]],
        completions: Sequence[Sequence[int]],
        work: Callable[[list[Sequence[int]], list[Sequence[int]], list[int]], list[T]],
        packed: bool = False,
    ) -> dict[int, T]:
        """`work(prompts, completions, rows)` in batches that fit the token budget, the longest sequences first: a
        sequence is a row, or where they are `packed`, all rows that one holds."""
        for prompt, completion in zip(prompts, completions, strict=True):
            if completion and (problem := self._problem(prompt, len(completion))):
                raise problem
        scale = self.token_budget / max(1, _LOGIT_CELLS // self.vocabulary)
        busy = [i for i, completion in enumerate(completions) if completion]
        sequences = [[i] for i in busy]
        if packed:
            packs = pack([prompts[i] for i in busy], [completions[i] for i in busy])
            sequences = [[busy[row] for row, _, _ in p.spans] for p in packs]  # the longest row of each comes last

        def cost(rows: list[int]) -> int:
            scored = int(sum(len(completions[i]) for i in rows) * scale)
            return max(len(prompts[rows[-1]]) + len(completions[rows[-1]]), scored)

        order = sorted(sequences, key=lambda rows: -cost(rows))
        found: dict[int, T] = {}
        while order:
            some = order[next(by_budget([cost(rows) for rows in order], self.token_budget))][: self.max_rows]
            rows = [i for of in some for i in of]
            done = self._attempt(len(some), work, [prompts[i] for i in rows], [completions[i] for i in rows], rows)
            if done is not None:
                found.update(zip(rows, done, strict=True))
                order = order[len(some) :]
        return found

    @property
    def _read(self) -> Callable[..., tuple[Tensor, Tensor]]:
        """What gives the logits of completions, as the layout has it."""
        return packed_logits if self.packed else completion_logits

    def score(
        self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], temperature: float = 1.0
    ) -> tuple[Tensor, Tensor]:
        """(N,) log-probabilities and (N,) entropies at the completion tokens of all rows in order; differentiable.

        One forward pass over everything: the caller keeps it within memory.
        """
        import torch

        logits, targets = self._read(self._net, prompts, completions, self._pad)
        logp = torch.log_softmax(tempered(logits, temperature)[0], -1)
        entropy = -(logp.exp() * logp.clamp(min=-1e4)).sum(-1)  # a masked token's 0 * -inf would be NaN
        return logp.gather(-1, targets[:, None]).squeeze(-1), entropy

    def save(self, path: str | Path, state: Mapping[str, Tensor] | None = None) -> None:
        """Write a folder that `load` takes: config, safetensors, tokenizer and chat template.

        `state` holds the plain model's tensors where the model here has them in parts or with an adapter.
        """
        from transformers.utils import logging

        logging.disable_progress_bar()
        given = {} if state is None else {"state_dict": dict(state)}
        self.model.save_pretrained(str(path), safe_serialization=True, **given)
        self.tokenizer.save_pretrained(str(path))

    def _attempt(self, rows: int, work: Callable[..., list[T]], *given: Any) -> list[T] | None:
        """`work(*given)` without gradients; None after running out of memory, with smaller limits for the next try."""
        import torch

        try:
            with torch.inference_mode():
                return work(*given)
        except RuntimeError as e:
            if not out_of_memory(e):
                raise
        # Outside the handler, whose traceback holds the tensors that are to be freed.
        if rows == 1:
            raise InfrastructureError(
                f"{self.model.device} has too little memory for one prompt at a time; "
                "use a smaller model, a lower --history or --max-new-tokens, or --device cpu."
            )
        self.max_rows, self.token_budget = rows // 2, max(1, self.token_budget // 2)
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return None


def out_of_memory(e: RuntimeError) -> bool:
    """Whether an error of PyTorch says that memory ran out."""
    import torch

    return isinstance(e, torch.OutOfMemoryError) or "can't allocate memory" in str(e)  # the latter is the CPU's
