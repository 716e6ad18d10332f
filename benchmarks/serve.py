"""HTTP steps a second: one client with keep-alive, then 64 at once, against a server in a process of its own.

    python benchmarks/serve.py --env alfworld --steps 3000

Prints the rate of bare requests and of RemoteEnv, with latencies, and what the 64 clients met. Exits 1 on any error.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from seedbench.exam import environments
from seedbench.remote import RemoteEnv

CLIENTS = 64


def bare(port: int, steps: int, seed: int) -> list[float]:
    """Seconds of each step over one keep-alive connection, actions from what the server offers; raises on any error."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def post(name: str, body: dict[str, Any]) -> dict[str, Any]:
        connection.request("POST", f"/api/{name}", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        data = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"HTTP {answer.status}: {data.decode()}")
        found: dict[str, Any] = json.loads(data)
        return found

    rng, times = np.random.default_rng(seed), []
    said = post("reset", {"seed": seed})
    session = said["session"]
    while len(times) < steps:
        if said["done"]:
            said = post("reset", {"session": session})
        actions = said["info"]["admissible"]
        action = actions[int(rng.integers(len(actions)))] if actions else ""
        began = time.perf_counter()
        said = post("step", {"session": session, "action": action})
        times.append(time.perf_counter() - began)
    post("close", {"session": session})
    return times


def remote(url: str, env_id: str, steps: int) -> float:
    """Seconds that `steps` steps of a RemoteEnv take, resets included."""
    env, rng = RemoteEnv(env_id, url), np.random.default_rng(0)
    env.reset(seed=0)
    began = time.perf_counter()
    for _ in range(steps):
        *_, terminated, truncated, _ = env.step(env.sample(rng))
        if terminated or truncated:
            env.reset()
    env.close()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="alfworld")
    parser.add_argument("--data", default="mini")
    parser.add_argument("--steps", type=int, default=3000)
    args = parser.parse_args()
    (env_id,) = environments(args.env)
    with serving(args.env, args.data) as port:
        errors = measure(port, env_id, args.steps)
    sys.exit(1 if errors else 0)


@contextmanager
def serving(env: str, data: str) -> Iterator[int]:
    """`seedbench serve env` in a process of its own while the block runs, which is given its port."""
    with tempfile.TemporaryDirectory() as folder:
        port_file = Path(folder) / "port"
        command = ["env", env, "--data", data, "--port", "0", "--port-file", str(port_file)]
        server = subprocess.Popen([sys.executable, "-m", "seedbench", "serve", *command], stdout=subprocess.DEVNULL)
        try:
            while not port_file.exists():
                if server.poll() is not None:
                    sys.exit("the server ended before it listened")
                time.sleep(0.05)
            yield int(port_file.read_text())
        finally:
            server.terminate()
            server.wait()


def measure(port: int, env_id: str, steps: int) -> int:
    """Print the figures; returns the number of clients that met an error."""
    bare(port, 200, seed=1)
    began = time.perf_counter()
    times = bare(port, steps, seed=2)
    wall = time.perf_counter() - began
    p99 = sorted(times)[int(0.99 * len(times))]
    print(f"{env_id}, one client, keep-alive: {steps / wall:.0f} steps/s, resets included; "
          f"a step {1000 * statistics.median(times):.2f} ms (median), {1000 * p99:.2f} ms (p99)")  # fmt: skip
    print(f"RemoteEnv, one client: {steps / remote(f'http://127.0.0.1:{port}', env_id, steps):.0f} steps/s")
    rate, errors = at_once(port, steps)
    print(f"{CLIENTS} clients at once: {rate:.0f} steps/s, {len(errors)} errors {errors[:3] or ''}")
    return len(errors)


def at_once(port: int, steps: int) -> tuple[float, list[str]]:
    """Steps a second of 64 clients together, resets included, and what errors they met."""
    errors: list[str] = []

    def client(k: int) -> None:
        try:
            bare(port, max(1, steps // CLIENTS), seed=k)
        except Exception as error:  # whatever a client meets is what is counted
            errors.append(repr(error))

    threads = [threading.Thread(target=client, args=(k,)) for k in range(CLIENTS)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return CLIENTS * max(1, steps // CLIENTS) / (time.perf_counter() - began), errors


if __name__ == "__main__":
    main()
