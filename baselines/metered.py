"""An endpoint that reports each try that brought nothing and may be billed all the same, and asks before another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from seedbench.agents.answer import PassingFault
from seedbench.agents.endpoint import Endpoint
from seedbench.core import Message, Reply, View


class Metered(Endpoint):
    """`lost` is called with the messages of such a try, `may` before every try: an error of it is the view's. Both are
    called on the thread that sends requests, one at a time."""

    def __init__(self, spec: str, lost: Callable[[Sequence[Message]], None], may: Callable[[], None], **options: Any):
        super().__init__(spec, **options)
        self._lost, self._may = lost, may
        self._counted: PassingFault | None = None

    async def _ask(self, view: View) -> Reply:
        self._may()
        try:
            return await super()._ask(view)
        except PassingFault as fault:
            if fault is not self._counted and not self._free(fault.__context__):  # a call may pass through here twice
                self._counted = fault
                self._lost(view.messages)
            raise

    def _free(self, cause: BaseException | None) -> bool:
        """Whether a try surely made no model work: it reached none, or was put off (429 and its like)."""
        if isinstance(cause, self._openai.APIStatusError):
            return bool(cause.status_code < 500)
        if isinstance(cause, self._openai.APIConnectionError):  # from an error of the HTTP library, which says more
            return type(cause.__cause__).__name__ in ("ConnectError", "ConnectTimeout")
        return False
