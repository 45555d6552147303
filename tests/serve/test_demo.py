"""The demo: a shop whose ledger is filled as time would have, and visitors who go on coming."""

import os
import signal
import socket
import subprocess
import sys
import time

import httpx
from services import until

from ensemble_sampling.ledger.ledger import Ledger
from ensemble_sampling.serve import demo

DAYS = 0.5


def last_evening() -> float:
    """The same time of the day whenever this is run, so that the same visitors come."""
    day = time.localtime(time.time() - 86400)
    return time.mktime((day.tm_year, day.tm_mon, day.tm_mday, 20, 0, 0, 0, 0, -1))


def test_a_ledger_is_filled_as_time_would_have_and_live_visitors_follow(tmp_path):
    now, shop, place = last_evening(), demo.Shop(), tmp_path / "shop"
    demo.fill(place / "default", shop, {}, now, DAYS)
    ledger = Ledger(place / "default", write=False)
    rows = list(ledger.all())
    times = [row.time for row in rows]
    assert now - DAYS * 86400 <= min(times) <= max(times) < now
    assert len(set(times)) > 8
    assert all(row.time < (row.learned or now) <= now for row in rows)
    assert sum(bool(row.outcome) for row in rows) > 3
    assert sum(row.outcome is None for row in rows) >= len(shop.due) > 0
    ledger.close()

    command = [sys.executable, "-m", "ensemble_sampling.cli", "demo", str(place)]
    about = {"env": {**os.environ, "BROWSER": "echo opened %s"}, "text": True}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, **about)
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline().strip() for _ in range(3)]
        assert lines[1] == "visitors go on coming; Ctrl-C ends it"
        assert lines[2] == lines[0].replace("dashboard at", "opened")
        url = lines[2].removeprefix("opened ").removesuffix("/dashboard")
        api = f"{url}/v1/bandits/default"
        until(lambda: httpx.get(f"{api}/status").json()["decisions"] > len(rows) + 1, 60.0)
        assert httpx.get(f"{api}/settings").json()["holdback"] == demo.HOLDBACK
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()


def test_a_port_in_use_is_said_before_anything_is_done(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "ensemble_sampling.cli", "demo", "--port", port]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "cannot listen on" in done.stderr
