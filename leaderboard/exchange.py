"""An entry in the shapes of the Hugging Face hub: `.eval_results` YAML and a `model-index` block.

Both hold one success rate an environment and split, as a fraction; neither format has a place for an interval or a
number of tasks, so these stand in words beside the figure (notes; metric args). Nothing is uploaded.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from seedbench import record
from seedbench.core import SeedbenchError
from seedbench.leaderboard.entry import Entry
from seedbench.results import Result
from seedbench.view import percent, short

INSTALL = "pip install 'huggingface_hub>=1' pyyaml (they come with seedbench's [train])"


def write(entry: Entry, dataset: str, out: Path, source: str | None = None) -> list[Path]:
    """Write `out`/.eval_results/seedbench.yaml and `out`/model-index.yaml; returns their paths.

    Args:
        dataset: hub id of the data set that stands for the benchmark; seedbench names none of its own.
        source: URL where the result can be checked.

    Raises:
        SeedbenchError: no hub id, no such package, or a partial result, which would be read as a whole one.
    """
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", dataset):
        raise SeedbenchError(f"--dataset {dataset} is no hub id: give ORGANISATION/NAME.")
    if out.exists() and not out.is_dir():
        raise SeedbenchError(f"--out {out} is a file: name a folder.")
    for r in entry.results.results:
        if r.partial:
            raise SeedbenchError(f"{entry.id} is partial on {short(r.env)} {r.split}: only whole splits are exported.")
    url = source or ""
    if url and not re.fullmatch(r"https?://[^\s<>\"']+", url):
        raise SeedbenchError(f"--source {url} is no http(s) URL.")
    texts = {
        out / ".eval_results" / "seedbench.yaml": _yaml(eval_results(entry, dataset, url)),
        out / "model-index.yaml": _yaml({"model-index": model_index(entry, dataset, url)}),
    }
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(path, text)
    return list(texts)


def eval_results(entry: Entry, dataset: str, url: str = "") -> list[dict[str, Any]]:
    """The objects of an `.eval_results` file, one an environment and split, read back by the hub's own parser."""
    hub = _hub()
    rows = [
        hub.EvalResultEntry(
            dataset_id=dataset,
            task_id=task_id(r),
            value=r.success.mean,
            source_url=url or None,
            source_name="seedbench" if url else None,
            notes=_notes(entry, r),
        )
        for r in entry.results.results
    ]
    data: list[dict[str, Any]] = hub.eval_result_entries_to_yaml(rows)
    assert hub.parse_eval_result_entries(data) == rows
    return data


def model_index(entry: Entry, dataset: str, url: str = "") -> list[dict[str, Any]]:
    """The `model-index` of a model card's metadata, read back by the hub's own parser."""
    hub = _hub()
    cards = hub.repocard_data
    rows = [
        cards.EvalResult(
            task_type="text-generation",
            task_name=f"{short(r.env)} (long-horizon agent)",
            dataset_type=dataset,
            dataset_name=f"seedbench {short(r.env)} ({r.data})",
            dataset_config=f"{short(r.env)}_{r.data}",
            dataset_split=r.split,
            metric_type="success_rate",
            metric_name="success",
            metric_value=r.success.mean,
            metric_args={
                "tasks": r.tasks,
                "episodes": r.attempted,
                "ci95": list(r.success.ci),
                "notes": _notes(entry, r),
            },
            source_name="seedbench" if url else None,
            source_url=url or None,
        )
        for r in entry.results.results
    ]
    index: list[dict[str, Any]] = cards.eval_results_to_model_index(entry.agent.name, rows)
    assert cards.model_index_to_eval_results(index) == (entry.agent.name, rows)
    return index


def task_id(result: Result) -> str:
    """The name of an environment, data set and split among the tasks of the benchmark's data set."""
    return f"{short(result.env)}_{result.data}_{result.split}"


def _notes(entry: Entry, r: Result) -> str:
    """What the figure rests on, in one line."""
    low, high = map(percent, r.success.ci)
    level = entry.verification.level if entry.verification else "none"
    trials = f" x {r.attempted // r.tasks} trials" if r.attempted != r.tasks else ""
    said = f"success {percent(r.success.mean)} % [{low}, {high}] (95 %, {r.success.method}), {r.tasks} tasks{trials}"
    selection = f"; checkpoint chosen: {entry.results.selection}" if entry.results.selection else ""
    return f"{said}; seedbench verification: {level}{selection}; chain head {entry.results.chain_head[:16]}"


def _hub() -> Any:
    try:
        import huggingface_hub
        import huggingface_hub.repocard_data
    except ImportError as error:
        raise SeedbenchError(f"the export needs huggingface_hub: {INSTALL}.") from error
    if not hasattr(huggingface_hub, "EvalResultEntry"):
        raise SeedbenchError(f"this huggingface_hub knows no .eval_results: {INSTALL}.")
    return huggingface_hub


def _yaml(value: object) -> str:
    try:
        import yaml
    except ImportError as error:
        raise SeedbenchError(f"the export needs PyYAML: {INSTALL}.") from error
    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120)
    return text
