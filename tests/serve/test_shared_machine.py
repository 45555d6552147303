"""Whatever several processes do to a served bandit, in whatever order, replaying gives the same."""

# pyright: reportOptionalMemberAccess=false, reportAttributeAccessIssue=false, reportArgumentType=false

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from processes import Process, step
from states import equal

import ensemble_sampling as es
from ensemble_sampling.decide.transfer import export_history
from ensemble_sampling.serve import outcomes
from ensemble_sampling.serve.types import Choose, Refused

AGENT = es.EnsembleSampling(es.Linear(dim=2, noise_std=0.5), members=3)
RIVAL = es.EnsembleSampling(es.Linear(dim=2, noise_std=0.3), members=3)
ROWS = np.random.default_rng(0).normal(size=(7, 2)).astype(np.float32)
WHO = st.integers(0, 1)
REWARD = st.sampled_from([-1.0, 0.0, 0.5, 2.0])


class Service(RuleBasedStateMachine):
    """Two processes of a service, as far as they share anything, and what they were told."""

    @initialize()
    def start(self):
        self.home = Path(tempfile.mkdtemp())
        self.started, self.promoted, self.shadowed = 0, False, False
        self.all = [self.process(), self.process()]
        self.ids: list[str] = []
        self.known: dict[str, float] = {}

    def process(self):
        found = Process(self.home / "shop", AGENT, candidates={"rival": RIVAL})
        self.started += 1
        found.updater.holder = f"process {self.started}"
        return found

    @rule(who=WHO, count=st.integers(1, 5), size=st.integers(1, 4))
    def decide(self, who, count, size):
        at = len(self.ids)
        asks = [
            Choose(ROWS[(at + n) % 3 :][:size].tolist(), event=f"{at + n}") for n in range(count)
        ]
        made, again = self.all[who].ask(*asks), self.all[1 - who].ask(*asks)
        assert [one.id for one in again] == [one.id for one in made]
        self.ids += [one.id for one in made]

    @precondition(lambda self: self.ids)
    @rule(who=WHO, which=st.integers(0, 10**6), y=REWARD)
    def outcome(self, who, which, y):
        id = self.ids[which % len(self.ids)]
        if id in self.known and self.known[id] != y:
            with pytest.raises(Refused):
                self.all[who].learn((id, 100.0))
        else:
            assert self.all[who].learn((id, y)) == [id not in self.known]
            self.known[id] = y

    @precondition(lambda self: self.known)
    @rule(who=WHO, which=st.integers(0, 10**6), y=REWARD, more=st.booleans())
    def revise(self, who, which, y, more):
        id = sorted(self.known)[which % len(self.known)]
        if more:
            self.all[who].add(id, y)
            self.known[id] += y
        else:
            assert self.all[who].correct(id, y) == (self.known[id] != y)
            self.known[id] = y

    @rule(who=WHO, y=REWARD, most=st.integers(1, 3))
    def expire(self, who, y, most):
        process = self.all[who]
        waiting = [id for id in self.ids if id not in self.known][:most]
        last = process.ledger.ask("SELECT max(time) FROM decisions") or 0.0
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(outcomes, "MOST", most)
            assert outcomes._expire_some(process.replicas, last, y) == len(waiting)
        self.known |= dict.fromkeys(waiting, y)

    @precondition(lambda self: self.known and len(self.ids) < 60)
    @rule(who=WHO)
    def import_state(self, who):
        front = self.all[who]
        assert front.import_state(export_history(front.ledger)) == len(self.known)
        numbers = range(len(self.ids), front.ledger.decisions)
        ids = [front.ledger.decision_id(n) for n in numbers]
        order = front.ledger.ask_all("SELECT decision FROM outcomes ORDER BY sequence")
        before = [self.ids[n] for (n,) in order[: len(ids)]]
        self.known |= {new: self.known[old] for new, old in zip(ids, before, strict=True)}
        self.ids += ids

    @rule(who=WHO, floor=st.sampled_from([0.0, 0.3]))
    def configure(self, who, floor):
        self.all[who].configure({"floor": floor})

    @precondition(lambda self: self.ids and not self.shadowed)
    @rule(who=WHO)
    def shadow(self, who):
        self.all[who].shadow("rival")
        self.shadowed = True

    @precondition(lambda self: self.shadowed and not self.promoted)
    @rule(who=WHO)
    def promote(self, who):
        self.all[who].promote("rival")
        self.promoted = True

    @rule(who=WHO, lost=st.booleans(), late=st.booleans())
    def step(self, who, lost, late):
        """One of them learns or follows; perhaps its lease has run out, or it is to publish."""
        process, updater = self.all[who], self.all[who].updater
        if lost:
            updater._ledger.release(self.all[1 - who].updater.holder)
            updater._renew = 0.0
        if late:
            updater._due = 0.0
        before = process.known
        updater.step()
        assert self.promoted or process.known[0] >= before[0]

    @rule(who=WHO, killed=st.booleans())
    def restart(self, who, killed):
        updater = self.all[who].updater
        if killed:
            updater._ledger.release(updater.holder)  # as time would
            updater.learning = False
        self.all[who].close()
        self.all[who] = self.process()

    def teardown(self):
        try:
            self.settle()
        finally:
            for process in self.all:
                process.close()
            shutil.rmtree(self.home)

    def settle(self):
        """All that is recorded reaches both, and is what a bandit that replays it learns."""
        step(*self.all * 3)
        assert sum(each.updater.learning for each in self.all) == 1
        for each in self.all:
            assert each.updater.behind == 0.0 or each.ledger.outcomes == 0
            assert each.ledger.outcomes == len(self.known) == each.updater.known
            assert each.ledger.decisions == len(self.ids)
        front = self.all[0]
        log = front.ledger.table()
        assert {
            id: y for id, y in zip(log["id"], log["outcome"], strict=True) if y is not None
        } == self.known
        replay = es.Bandit(RIVAL if self.promoted else AGENT)._replica
        state = replay.sync(front.ledger)
        for one in self.all:
            assert one.replicas.name == ("rival" if self.promoted else "default")
            assert self.known == {} or equal(one.main.version.state, state)
        if self.shadowed and not self.promoted and self.known:
            state = es.Bandit(RIVAL)._replica.sync(front.ledger)
            for one in self.all:
                assert equal(one.shadow_replica("rival").version.state, state)


Service.TestCase.settings = settings(
    max_examples=8,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],  # to make it smaller takes minutes
    suppress_health_check=list(HealthCheck),
)
test_any_order_is_that_of_a_replay = Service.TestCase
