"""Keeps several worker processes of a service running; run as a program of its own.

It imports nothing but the standard library, so that it is small, starts at once and never has
JAX's threads. All workers accept from one listening socket, which is bound before: a connection
made while one of them is started anew waits for another.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time

OPTIONS = "ENSEMBLE_SAMPLING_SERVE"  # the environment variable that says how to serve, in JSON
REFUSED = 2  # how a worker ends that could never start: what it was told is wrong
ROOM = 64 * 1024  # bytes of shared memory for the counts of a worker, see `metrics`
PATIENCE = 30.0  # seconds to end in


class Worker:
    """One process, started anew when it ends: at once, or later if it never lived long."""

    def __init__(self, number: int, options: dict, keep: tuple[int, ...]):
        self.number, self._options, self._keep = number, options, keep
        self.process: subprocess.Popen[bytes] | None = None
        self._due, self._began, self._failures, self._starts = 0.0, 0.0, 0, 0

    def look(self, now: float) -> int | None:
        """Start it if it is due; how it ended, if it just did."""
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
        # One of them answers from the first that it is starting; the others, and whoever is started
        # anew, leave connections to those that decide already.
        waits = self.number > 0 or self._starts > 0
        said = json.dumps({**self._options, "process": self.number, "waits": waits})
        self._began, self._starts = now, self._starts + 1
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ensemble_sampling.serve.run"],
            env={**os.environ, OPTIONS: said},
            pass_fds=self._keep,
            start_new_session=True,  # Ctrl-C is for the supervisor, which tells them to end
        )

    @property
    def first(self) -> bool:
        """Whether it was started only once."""
        return self._starts == 1

    def end(self, number: int) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)


def supervise(options: dict) -> int:
    """Until told to end; the exit status."""
    asked: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda told, _: asked.append(told))
    count = options["workers"]
    with tempfile.TemporaryFile() as counters:
        counters.truncate(ROOM * count)
        alive, held = os.pipe()  # workers see it close when this process ends, however it does
        options = {**options, "counters": counters.fileno(), "alive": alive}
        keep = (options["socket"], counters.fileno(), alive)
        workers = [Worker(number, options, keep) for number in range(count)]
        status = 0
        while not asked and not status:
            now = time.monotonic()
            for worker in workers:
                code = worker.look(now)
                if code == REFUSED and worker.first:  # later, others go on by what they were told
                    status = REFUSED
                elif code is not None:
                    _say(f"worker {worker.number} ended with {code}; starting it anew")
            time.sleep(0.05)
        _end(workers)
        os.close(held)
    return status


def _end(workers: list[Worker]) -> None:
    """Requests in flight are answered; who takes too long is killed."""
    for worker in workers:
        worker.end(signal.SIGTERM)
    until = time.monotonic() + PATIENCE
    for worker in workers:
        if worker.process is None:
            continue
        try:
            worker.process.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            _say(f"worker {worker.number} did not end; killing it")
            worker.process.kill()
            worker.process.wait()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(supervise(json.loads(os.environ.pop(OPTIONS))))
