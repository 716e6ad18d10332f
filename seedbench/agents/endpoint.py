"""`openai:MODEL@URL`: any OpenAI-compatible chat endpoint (vLLM, llama.cpp, Ollama, a cloud) as an agent.

All views of a batch are asked at the same time. A fault that may pass (429, 5xx, no connection, no answer in time, an
answer that is none) is tried again; if it stays, the episode is left unplayed. What another try would not change (a
prompt that is too long, a model that is not there) is that episode's error. Sampling cannot be made exact over HTTP:
`seed` is sent from the view's stream, and a server may heed it or not.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import threading
import weakref
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from seedbench.agents.answer import PassingFault, clip, judge_status, read_answer
from seedbench.agents.connection import BIGGEST_BODY, CURE, EndlessAnswer, basic_of_environment, http_client, read_spec
from seedbench.core import Agent, InfrastructureError, Reply, SeedbenchError, TextEnv, View, stream

LONGEST_WAIT = 60.0  # seconds; a server that asks for a longer pause than this is taken as down


class Endpoint(Agent):
    """A chat model behind HTTP. `OPENAI_API_KEY` is its key; without one a dummy is sent, as local servers expect.

    HTTP Basic instead of a key: user and password in the URL, or `OPENAI_BASIC_AUTH=user:password`, which a run that
    is resumed needs, as no credentials are written to run.json.
    """

    def __init__(
        self,
        spec: str,
        *,
        batch: int = 64,
        deadline: float = 180.0,
        retries: int = 4,
        backoff: float = 1.0,
        breaker: int = 3,
    ):
        """Read the spec; nothing is sent yet. Raises SeedbenchError for a bad spec, or when `openai` is missing.

        `batch` requests run at a time; each try has `deadline` seconds; try k+1 comes `backoff` * 2^k seconds (give or
        take a half) after try k, or when the server's Retry-After says; after `breaker` requests in a row that failed
        for good, nothing more is sent.
        """
        self.name, self.model, url, basic = read_spec(spec)
        self.host = urlsplit(url).netloc
        self.batch, self.deadline, self.retries, self.backoff, self.breaker = batch, deadline, retries, backoff, breaker
        self._key = os.environ.get("OPENAI_API_KEY", "").strip()
        if not (self._key.isascii() and self._key.isprintable()):
            raise SeedbenchError("OPENAI_API_KEY holds characters that no key has: set it to the key alone.")
        basic = basic or basic_of_environment()
        try:
            import openai
        except ImportError as error:
            raise SeedbenchError(
                f"--agent {self.name} needs the openai package ({error}): pip install -e '.[api]'."
            ) from error
        self._openai = openai
        password = base64.b64decode(basic).decode(errors="replace").partition(":")[2]
        self._secrets = [s for s in (self._key, basic, password) if len(s) >= 8]  # "EMPTY" and the like are no secrets
        timeout = openai.Timeout(deadline, connect=min(10.0, deadline))
        client = http_client(openai, timeout)
        headers = {"Authorization": f"Basic {basic}"} if basic else None
        try:
            self._client = openai.AsyncOpenAI(
                api_key=self._key or "none",
                base_url=url,
                max_retries=0,
                timeout=timeout,
                default_headers=headers,
                http_client=client,
            )
        except Exception as error:  # a host that cannot be: the type is the HTTP library's, which openai has changed
            raise SeedbenchError(f"--agent {self.name} has a bad URL ({clip(str(error))}): {CURE}.") from None
        self._limit_name = "max_tokens"  # newer OpenAI models want max_completion_tokens: learnt from their refusal
        self._send_seed = True
        self._failed = 0  # requests in a row
        self._down: InfrastructureError | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def act(self, views: Sequence[View], envs: Sequence[TextEnv] | None = None) -> list[Reply | Exception]:
        """One reply a view; in a place an InfrastructureError (unplayed) or a SeedbenchError (that view's failure)."""
        if self._loop is None:  # in a thread of its own: Ctrl-C waits for no request, a notebook keeps its own loop
            self._loop = asyncio.new_event_loop()
            thread = threading.Thread(target=self._loop.run_forever, name=f"requests to {self.host}", daemon=True)
            thread.start()
            weakref.finalize(self, _stop, self._loop, thread, self._client)
        future = asyncio.run_coroutine_threadsafe(self._all(views), self._loop)
        try:
            return future.result()
        finally:
            future.cancel()

    async def _all(self, views: Sequence[View]) -> list[Reply | Exception]:
        gate = asyncio.Semaphore(self.batch)
        return list(await asyncio.gather(*(self._reply(view, gate) for view in views)))

    async def _reply(self, view: View, gate: asyncio.Semaphore) -> Reply | Exception:
        """Ask until there is an answer, the fault will not pass, or the tries are used up."""
        attempt = 0
        while True:
            async with gate:
                if self._down is not None:
                    return self._down
                try:
                    reply = await self._ask(view)
                    self._failed = 0
                    return reply
                except PassingFault as fault:
                    attempt += 1
                    spread = 0.5 + stream(view.stream, attempt) / 2**53  # so that a batch does not come back as one
                    wait = max(fault.wait, self.backoff * 2 ** (attempt - 1) * spread)
                    if attempt > self.retries or fault.wait > LONGEST_WAIT:
                        return self._give_up(fault, attempt)
                except InfrastructureError as error:  # will not pass, and is nobody's episode alone: a key, a path
                    self._down = error
                    return error
                except SeedbenchError as error:
                    self._failed = 0
                    return error
            await asyncio.sleep(wait)

    def _give_up(self, fault: PassingFault, tries: int) -> InfrastructureError:
        self._failed += 1
        pause = f" and asks for {fault.wait:.0f} s of patience" if fault.wait > LONGEST_WAIT else ""
        said = f"{self.host} {fault}{pause} (tries: {tries})"
        if self._failed >= self.breaker and self._down is None:
            self._down = InfrastructureError(f"{said}; {self._failed} requests in a row failed, so no more are sent")
        return InfrastructureError(said)

    async def _ask(self, view: View) -> Reply:
        """One request. Raises PassingFault, InfrastructureError or SeedbenchError."""
        request = self._request(view)
        try:
            async with asyncio.timeout(self.deadline):  # the client's own bounds each read, not their sum
                raw = await self._client.chat.completions.with_raw_response.create(**request)
        except (TimeoutError, self._openai.APITimeoutError):
            raise PassingFault(f"gave no answer within {self.deadline:g} s (a smaller --batch may help)") from None
        except EndlessAnswer:
            raise PassingFault(f"gave an answer of more than {BIGGEST_BODY >> 20} MiB") from None
        except self._openai.APIConnectionError as error:
            cause = error.__cause__ or error
            said = clip(self._redact(f"{type(cause).__name__}: {cause}"))
            raise PassingFault(f"cannot be reached ({said})") from None
        except self._openai.APIStatusError as error:
            body = self._redact(error.response.text)
            if self._adapt(request, error.status_code, body):
                return await self._ask(view)
            fault = judge_status(error.status_code, body, error.response.headers, self.host, self.model)
            fault.args = (self._redact(str(fault)),)  # again: JSON may have spelled a secret in another way
            raise fault from None
        try:
            return read_answer(raw.http_response.text)
        except PassingFault as fault:
            raise PassingFault(self._redact(str(fault))) from None

    def _request(self, view: View) -> dict[str, Any]:
        messages = [{k: v.encode("utf-8", "replace").decode() for k, v in m.items()} for m in view.messages]
        request: dict[str, Any] = {
            "model": self.model,
            "messages": messages,
            "temperature": self.sampling.temperature,
            "top_p": self.sampling.top_p,
            self._limit_name: self.sampling.max_new_tokens,
        }
        return {**request, "seed": view.stream % 2**31} if self._send_seed else request  # some servers keep 32 bits

    def _adapt(self, request: dict[str, Any], status: int, body: str) -> bool:
        """Whether a request was refused for the name of a parameter that can be left out or put in another way."""
        if status not in (400, 422):
            return False
        if "max_tokens" in request and "max_completion_tokens" in body:
            self._limit_name = "max_completion_tokens"
            return True
        if "seed" in request and re.search(r"""['"`.]seed['"`\\]""", body):
            self._send_seed = False
            return True
        return False

    def _redact(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def describe(self) -> dict[str, Any]:
        """Model, host and limits; never a key, and of the URL neither user nor password."""
        limits = {"deadline_s": self.deadline, "retries": self.retries, "backoff_s": self.backoff}
        return {"spec": self.name, "kind": "api", "model": self.model, "host": self.host, **limits}


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread, client: Any) -> None:
    """Close the connections and end the thread when the agent is dropped, or Python ends."""
    asyncio.run_coroutine_threadsafe(client.close(), loop).result(timeout=5)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(timeout=5)
    loop.close()
