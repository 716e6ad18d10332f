"""Arrows point into the core (docs: CONTRIBUTING.md), and nothing heavy loads before it is needed."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {"envs": "seedbench.envs", "indexes": "seedbench.indexes", "baselines": "seedbench.baselines",
           "leaderboard": "seedbench.leaderboard", "seedbench": "seedbench"}  # fmt: skip

# Layer of each core module: it may import modules of its own or a lower layer.
LAYERS = [
    {"core"},
    {"prompts", "record", "journal", "stats", "provenance", "replies"},
    {"rollout", "results", "client", "remote"},
    {"summarize", "view"},
    {"agents", "policy", "exam"},
    {"evaluate", "finish", "playing", "shard", "train", "data", "doctor", "serve"},
    {"commands"},
    {"cli", "__main__"},
]
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer} | {"__init__": 0}


def modules() -> list[tuple[str, Path]]:
    found = []
    for folder, package in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            found.append((".".join((package, *parts)), path))
    return found


def imports(path: Path) -> set[str]:
    """Every module a file imports, at its top or inside a function."""
    out: set[str] = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):  # names that only a type checker reads are no dependency
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            out |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            out |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return out


@pytest.mark.parametrize("name, path", modules(), ids=[name for name, _ in modules()])
def test_arrows_point_into_the_core(name: str, path: Path) -> None:
    ours = {i for i in imports(path) if i.startswith("seedbench.")}
    outer = ("envs", "indexes", "baselines", "leaderboard")
    area = name.split(".")[1]
    allowed: dict[str, set[str]] = {
        "envs": {"core", "prompts", "record", "envs", "indexes"},
        "indexes": {"core", "record", "indexes"},
        "leaderboard": {
            "core", "prompts", "record", "stats", "rollout", "results", "summarize", "exam", "view", "leaderboard",
        },
    }  # fmt: skip
    # Two levels of verification load the model itself, inside functions.
    models = (
        {"agents", "policy"}
        if name.split(".")[-1] in ("audit", "evidence", "recorded", "scripted", "reproduced")
        else set()
    )
    for module in ours:
        target = module.split(".")[1]
        if area in allowed:
            assert target in allowed[area] | (models if area == "leaderboard" else set()), f"{name} imports {module}"
        elif area != "baselines":
            assert target not in outer, f"{name} imports {module}: the core reaches {target} by string only"
            if target in RANK:
                assert RANK[target] <= RANK[area], (
                    f"{name} (layer {RANK[area]}) imports {module} (layer {RANK[target]})"
                )


HEAVY = (
    "torch",
    "transformers",
    "scipy",
    "pandas",
    "spacy",
    "textworld",
    "alfworld",
    "pyserini",
    "faiss",
    "flask",
    "jinja2",
)


@pytest.mark.parametrize(
    "code", ["import seedbench.cli", "import seedbench.evaluate", "import seedbench.envs.alfworld.env"]
)
def test_nothing_heavy_is_imported_early(code: str) -> None:
    check = f"{code}; import sys; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_from_a_checkout_without_an_editable_install() -> None:
    """`python -m seedbench` beside the folders that are its subpackages finds them."""
    drop = "sys.meta_path = [f for f in sys.meta_path if 'editable' not in str(f).lower()]"
    code = f"import sys; {drop}; import seedbench.envs"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
