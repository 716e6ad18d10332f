"""A causal LM of transformers with its tokenizer and chat template: what every engine that plays it has in common."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seedbench.core import Message, SeedbenchError
from seedbench.policy import chat, weights
from seedbench.policy.decoding import Generation
from seedbench.policy.pieces import Pieces


class Checkpoint(ABC):
    """`model` with its `tokenizer`, loaded from `folder` where there is one. Raises SeedbenchError for a template that
    cannot be rendered. `max_rows` prompts decode at once."""

    def __init__(self, model: Any, tokenizer: Any, folder: Path | None = None):
        self.model = model
        self.tokenizer = tokenizer
        self.folder = folder
        self.max_rows = 64
        self.merges_system = chat.merges_system(tokenizer)  # first: it says what is wrong with a template
        self._marks = chat.marks(tokenizer)
        self.stop_ids = chat.stop_ids(model, tokenizer)
        self.vocabulary: int = model.get_input_embeddings().num_embeddings
        self.context: int | None = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        self._pieces = Pieces(tokenizer)
        self._revision: str | None = None

    @abstractmethod
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

        A prompt that cannot be continued has a SeedbenchError in its place and disturbs no other.
        """

    def encode(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Ids of the rendered messages and the start of the assistant's turn. Raises SeedbenchError.

        Where the template knows no system role, the system text goes in front of the first user message.
        """
        if not messages:
            raise SeedbenchError("The view holds no messages; render it with its environment's PROMPT first.")
        plain: list[Message] = [{**m, "content": self.plain(m["content"])} for m in messages]
        turns = merge_system(plain) if self.merges_system else plain
        try:
            return self._pieces.ids(chat.render(self.tokenizer, turns))
        except UnicodeEncodeError as e:
            raise SeedbenchError(
                f"The prompt holds text that is not valid Unicode ({weights.why(e)}); mend the observation."
            ) from e
        except Exception as e:  # a template is a program of its own and may fail as any can: 1/0, recursion, memory
            raise SeedbenchError(
                f"The model's chat template cannot render this prompt ({weights.why(e)}); pass --chat-template FILE."
            ) from e

    def plain(self, text: str) -> str:
        """`text` with special tokens taken apart, as in a prompt."""
        return chat.apart(text, self._marks)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of a completion without special tokens (end of turn, padding), spaces left as they are."""
        return self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def describe(self) -> dict[str, Any]:
        """Model class, size, dtype, digests of weights and chat template: for run.json."""
        if self._revision is None and self.folder is not None:
            self._revision = weights.sha256_files(weights.weight_files(self.folder))
        template = self.tokenizer.get_chat_template()
        return {
            "model": type(self.model).__name__,
            "parameters": self.model.num_parameters(),
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "device": str(self.model.device),
            "revision": self._revision,
            "chat_template_sha256": hashlib.sha256(template.encode()).hexdigest(),
            "system_role": "merged into the first user message" if self.merges_system else "own message",
        }

    def _problem(self, prompt: Sequence[int], new: int) -> SeedbenchError | None:
        if not prompt:
            return SeedbenchError("The prompt has no tokens; check the chat template.")
        if self.context and len(prompt) + new > self.context:
            return SeedbenchError(
                f"The prompt has {len(prompt)} tokens and {new} more are asked for, but the model's context is "
                f"{self.context}; lower --history or --max-new-tokens, or use a model with a longer context."
            )
        if min(prompt) < 0 or max(prompt) >= self.vocabulary:
            return SeedbenchError(
                f"The prompt has ids outside the model's {self.vocabulary} tokens; check the tokenizer."
            )
        return None


def merge_system(messages: Sequence[Message]) -> list[Message]:
    system = [m["content"] for m in messages if m["role"] == "system"]
    turns = [dict(m) for m in messages if m["role"] != "system"]
    if system:
        first = next((m for m in turns if m["role"] == "user"), None)
        if first is None:
            turns.insert(0, {"role": "user", "content": "\n\n".join(system)})
        else:
            first["content"] = "\n\n".join([*system, first["content"]])
    return turns
