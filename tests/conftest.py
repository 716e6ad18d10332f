"""What several test files share: the real data where it is at hand, and proof that nothing reaches for a network."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# For this process and all that tests start, before anything has loaded PyTorch or a BLAS: matrices as small as those
# here lose time to threads, the more so where pytest-xdist has a process on every core already.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def need(present: object, reason: str) -> None:
    """Skip with a reason where an optional program or extra is missing; where all must be there (CI), fail instead."""
    if present:
        return
    if os.environ.get("SEEDBENCH_REQUIRE_ALL") == "1":
        pytest.fail(f"SEEDBENCH_REQUIRE_ALL=1, but {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The real third-party files; the suite passes without them, but proves less."""
    data = Path(os.environ.get("SEEDBENCH_SHARED", ROOT.parent / "shared")) / "data"
    if not data.is_dir():
        pytest.skip(f"no real data at {data} (set SEEDBENCH_SHARED to the folder that holds data/)")
    return data


@pytest.fixture(scope="session")
def published_seen(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The published tree with the 140 games of valid_seen."""
    dest = tmp_path_factory.mktemp("published")
    unpack = shared_data / "alfworld" / "unpack.py"
    subprocess.run([sys.executable, unpack, dest, "--split", "valid_seen"], check=True, capture_output=True)
    return dest


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any attempt to leave this machine fails the test. Loopback stays open for servers that a test starts itself."""
    real = socket.socket.connect

    def connect(self: socket.socket, address: object) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6):
            assert isinstance(address, tuple)
            if address[0] not in ("127.0.0.1", "::1", "localhost"):
                raise AssertionError(f"a test reached for the network: {address}")
        return real(self, address)

    def lookup(host: object, *args: object, **kwargs: object) -> object:
        if host not in ("127.0.0.1", "::1", "localhost", None, ""):
            raise AssertionError(f"a test looked up {host!r}")
        return real_lookup(host, *args, **kwargs)  # type: ignore[arg-type]

    real_lookup = socket.getaddrinfo
    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket, "getaddrinfo", lookup)
