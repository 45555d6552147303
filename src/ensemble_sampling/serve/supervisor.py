"""Keeps several worker processes of a service running; run as a program of its own.

It imports nothing but the standard library, so that it is small, starts at once and never has
JAX's threads. All workers accept from one listening socket, which is bound before: a connection
made while one of them is started anew goes to another.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time

OPTIONS = "ENSEMBLE_SAMPLING_SERVE"  # the environment variable that says how to serve, in JSON
REFUSED = 2  # the exit status of a worker whose options are wrong, so that it can never start
METRICS = "PROMETHEUS_MULTIPROC_DIR"  # the one that says where workers keep their counts
PATIENCE = 30.0  # seconds that workers have to end


class Worker:
    """One process, started again when it ends: at once, or later if it keeps failing early."""

    def __init__(self, number: int, options: dict, keep: tuple[int, ...]):
        self.number, self._options, self._keep = number, options, keep
        self.process: subprocess.Popen[bytes] | None = None
        self._due, self._began, self._failures, self._starts = 0.0, 0.0, 0, 0

    def look(self, now: float) -> int | None:
        """Start it if it is due; its exit status, if it just ended."""
        if self.process is None:
            if now >= self._due:
                self._start(now)
            return None
        code = self.process.poll()
        if code is None:
            return None
        self.process = None
        self._failures = 0 if now - self._began > 10.0 else self._failures + 1
        # The first time at once, then after 0.5 s, 1 s, 2 s, ...
        wait = 0.0 if self._failures <= 1 else min(30.0, 0.25 * 2.0 ** (self._failures - 1))
        self._due = now + wait
        return code

    def _start(self, now: float) -> None:
        # The first worker answers at once that the service is starting. Others, and those that are
        # started anew, accept no connection before they decide.
        waits = self.number > 0 or self._starts > 0
        options = json.dumps({**self._options, "waits": waits})
        self._began, self._starts = now, self._starts + 1
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ensemble_sampling.serve.run"],
            env={**os.environ, OPTIONS: options},
            pass_fds=self._keep,
            start_new_session=True,  # Ctrl-C reaches the supervisor alone, which ends them
        )

    @property
    def first(self) -> bool:
        """Whether it was started only once."""
        return self._starts == 1


def supervise(options: dict) -> int:
    """Until told to end; the exit status."""
    signals: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, _: signals.append(received))
    with tempfile.TemporaryDirectory(prefix="ensemble-sampling-", ignore_cleanup_errors=True) as f:
        os.environ[METRICS] = f
        alive, held = os.pipe()  # workers see it close when this process ends, however it does
        options, keep = {**options, "alive": alive}, (options["socket"], alive)
        workers = [Worker(number, options, keep) for number in range(options["workers"])]
        status = 0
        while not signals and not status:
            now = time.monotonic()
            for worker in workers:
                code = worker.look(now)
                if code == REFUSED and worker.first:  # after a restart, the others can go on
                    status = REFUSED
                elif code is not None:
                    _log(f"worker {worker.number} ended with {code}; starting it anew")
            time.sleep(0.05)
        _end(workers)
        os.close(held)
    return status


def _end(workers: list[Worker]) -> None:
    """Workers answer requests in flight; one that takes too long is killed."""
    running = [(worker.number, worker.process) for worker in workers if worker.process is not None]
    for _, process in running:
        process.terminate()
    until = time.monotonic() + PATIENCE
    for number, process in running:
        try:
            process.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            _log(f"worker {number} did not end; killing it")
            process.kill()
            process.wait()


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(supervise(json.loads(os.environ.pop(OPTIONS))))
