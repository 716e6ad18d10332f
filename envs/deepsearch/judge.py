"""A language model as the judge of answers that are not letter for letter the expected one.

    judge = open_judge("my-model@http://127.0.0.1:8000/v1")
    judge.verdict(question, golds, answer)                # True or False, asked once and then remembered

Model and prompt digest are part of the environment's digest, the URL is not. A verdict is kept in a file as a hash and
a word, so that no question stands there in the clear: `SEEDBENCH_VERDICTS`, or verdicts.jsonl under ~/.cache/seedbench.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from filelock import FileLock

from seedbench.core import InfrastructureError, SeedbenchError
from seedbench.prompts import sha256_json

FILE, URL = "SEEDBENCH_VERDICTS", "SEEDBENCH_JUDGE_URL"  # environment variables
PROMPT = """Compare an answer with the expected one.

Question: {question}
Expected: {golds}
Answer: {answer}

The answer is right if it names what is expected: other words, spelling, units or rounding do not matter, and more \
detail does not unless it contradicts. It is wrong if it names something else, several things of which only one is \
expected, or nothing. Say briefly why, then end with a line that is `verdict: right` or `verdict: wrong`."""
_VERDICT = re.compile(r"verdict:\W*(right|wrong)\b", re.IGNORECASE)
LONGEST = 2000  # characters of an answer that are judged


def prompt_digest() -> str:
    """Names the words of the judge's prompt."""
    return sha256_json(PROMPT)[:16]


class Judge:
    """One model. Without a URL only verdicts that are known already are given."""

    def __init__(self, model: str, url: str, path: Path):
        self.model, self.url, self.path = model, url, path
        self._known: dict[str, bool] | None = None
        self._lock = threading.Lock()

    def verdict(self, question: str, golds: Sequence[str], answer: str) -> bool:
        """Whether the answer is right. Raises InfrastructureError where the endpoint gives no verdict."""
        answer = answer[:LONGEST]
        key = sha256_json([self.model, prompt_digest(), question, list(golds), answer])
        with self._lock:
            if self._known is None:
                self._known = self._read()
            if key not in self._known:
                self._known[key] = said = self._ask(question, golds, answer)
                self._keep(key, said)
            return self._known[key]

    def _read(self) -> dict[str, bool]:
        """The verdicts in the file; the first of several holds, and a torn line is none."""
        known: dict[str, bool] = {}
        if not self.path.exists():
            return known
        for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                key, said = json.loads(line)
            except ValueError:
                continue
            known.setdefault(key, said == "right")
        return known

    def _keep(self, key: str, right: bool) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{self.path}.lock"), self.path.open("a", encoding="utf-8", newline="\n") as out:
                out.write(json.dumps([key, "right" if right else "wrong"]) + "\n")
        except OSError as error:
            raise InfrastructureError(f"{self.path} cannot be written ({error}): mend that, or set {FILE}.") from error

    def _ask(self, question: str, golds: Sequence[str], answer: str) -> bool:
        if not self.url:
            raise InfrastructureError(
                f"no verdict of {self.model} on an answer is known: set {URL} to its endpoint, or {FILE} to the file "
                "of verdicts that the run left."
            )
        text = PROMPT.format(question=question, golds=" or ".join(golds), answer=answer)
        for _ in range(2):  # a reply without a verdict is asked for once more
            try:
                reply = self._client.chat.completions.create(
                    model=self.model, messages=[{"role": "user", "content": text}], temperature=0, max_tokens=1024
                )
                found = _VERDICT.findall(reply.choices[0].message.content or "")
            except Exception as error:  # whatever the client raises, the agent is not to blame
                raise InfrastructureError(
                    f"the judge {self.model} failed ({type(error).__name__}): mend its endpoint, then --resume the run."
                ) from error
            if found:
                return bool(found[-1].lower() == "right")
        raise InfrastructureError(f"the judge {self.model} gives no verdict: name a model that follows its prompt.")

    @cached_property
    def _client(self) -> Any:
        try:
            import openai
        except ImportError as error:
            raise SeedbenchError("A judge needs the package openai: pip install -e '.[api]'.") from error
        return openai.OpenAI(base_url=self.url, api_key=os.environ.get("OPENAI_API_KEY") or "none", max_retries=4)


@lru_cache(maxsize=4)
def open_judge(spec: str) -> Judge:
    """The judge that MODEL@URL names, or MODEL alone, whose URL SEEDBENCH_JUDGE_URL may give."""
    model, _, rest = spec.partition("@http")
    url = f"http{rest}" if rest else os.environ.get(URL, "")
    if not model or (url and not re.fullmatch(r"https?://[^\s@?#]+", url)):
        raise SeedbenchError("--judge is MODEL@URL, for example my-model@http://localhost:8000/v1, without a password.")
    kept = os.environ.get(FILE) or str(Path.home() / ".cache" / "seedbench" / "verdicts.jsonl")
    return Judge(model, url.rstrip("/"), Path(kept))
