"""Logs of Vowpal Wabbit: what they say, what is left out, and how what is wrong is said."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

import ensemble_sampling as es
from ensemble_sampling.evaluation import vw
from ensemble_sampling.evaluation.said import Ragged

ADF = """shared |User device=phone hour:8
|Action kind=news age:2
0:-1.0:0.5 |Action kind=sport age:1

shared |User device=desk hour:20
1:0.5:0.75 tag|Action kind=news age:3
 |Action kind=sport age:2
'later |Action kind=art

shared |User device=desk hour:21
|Action kind=news age:3
|Action kind=art

|Action kind=news age:3
0:2 |Action kind=art
"""
CB = """1:-2:0.4 |User old
3:0.5:0.2 |User new age:3
2 3:1:0.25 |User old
"""
EVENT = {
    "_label_cost": -1.0,
    "_label_probability": 0.8,
    "_label_Action": 2,
    "_labelIndex": 1,
    "EventId": "e1",
    "a": [2, 1, 3],
    "p": [0.8, 0.15, 0.05],
    "c": {
        "User": {"device": "phone", "hour": 8, "_id": 3},
        "_multi": [
            {"_tag": "x", "Action": {"kind": "news", "_text": "of the day"}},
            {"Action": {"kind": "sport", "at": [0.5, 1]}},
            {"Action": {"tags": ["a", "b"]}},
        ],
    },
}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (" a b:2 c=d\n", {"a": True, "b": 2.0, "c": "d"}),
        ("User device=phone |Item new", {"User": {"device": "phone"}, "Item": {"new": True}}),
        ("A x |B y |A z", {"A": {"x": True, "z": True}, "B": {"y": True}}),
        ("A x:1 x:2 k=v k=w k=u", {"A": {"x": [1.0, 2.0], "k": ["v", "w", "u"]}}),
        ("A:2 x y:3 k=v w:u", {"A": {"x": 2.0, "y": 6.0, "k=v": 2.0, "w=u": 2.0}}),
        ("A w:u k=v:2 n:nan =w :3", {"A": {"w": "u", "k=v": 2.0, "n": None, "=w": True, "": 3.0}}),
        (" A x |A y", {"A": [True, {"y": True}], "x": True}),
        ("", {}),
        ("A", {"A": {}}),
    ],
)
def test_features_are_read_as_vowpal_wabbit_reads_them(text, said):
    assert vw.features(text) == said


@pytest.mark.parametrize("packed", [False, True])
def test_examples_of_several_lines_keep_all_actions(tmp_path, packed):
    path = tmp_path / ("log.txt.gz" if packed else "log.txt")
    path.write_bytes(gzip.compress(ADF.encode()) if packed else ADF.encode())
    log = es.Log.read_vw(path)
    assert log.excluded == {"outcome missing": 1, "propensity missing": 1}
    np.testing.assert_array_equal(log.chosen, [1, 0])
    np.testing.assert_array_equal(log.outcome, [1.0, -0.5])
    np.testing.assert_array_equal(log.propensity, [0.5, 0.75])
    assert log.propensities is None
    np.testing.assert_array_equal(log.available, [[True, True, False], [True] * 3])
    first, second = log.offers()
    assert first.context == {"User": {"device": "phone", "hour": 8.0}}
    assert first.actions[1] == {"Action": {"kind": "sport", "age": 1.0}}
    assert second.actions[2] == {"Action": {"kind": "art"}}
    assert log.hashed
    assert first.features[:2].any(axis=1).all()
    assert not first.features[2].any()


def test_an_example_ends_with_the_file_or_an_empty_line_whatever_else_is_around(tmp_path):
    path = tmp_path / "log.txt"
    for text in ("\n \n" + ADF.rstrip(), ADF.replace("\n\n", "\n  \n\n").replace("\n", "\r\n")):
        path.write_text(text)
        np.testing.assert_array_equal(es.Log.read_vw(path).outcome, [1.0, -0.5])


def test_lines_of_numbered_actions_share_a_context(tmp_path):
    path = tmp_path / "log.txt"
    path.write_text(CB)
    for log, arms in ((es.Log.read_vw(path), 3), (es.Log.read_vw(path, arms=4), 4)):
        assert log.shared
        assert log.actions == list(range(1, arms + 1))
        np.testing.assert_array_equal(log.chosen, [0, 2, 2])
        np.testing.assert_array_equal(log.outcome, [2.0, -0.5, -1.0])
        np.testing.assert_array_equal(log.propensity, [0.4, 0.2, 0.25])
        np.testing.assert_array_equal(log.available[:2], np.ones((2, arms), bool))
        np.testing.assert_array_equal(
            log.available[2], [name in (2, 3) for name in log.actions or ()]
        )
        offers = list(log.offers())
        assert [offer.context for offer in offers] == [
            {"User": {"old": True}},
            {"User": {"new": True, "age": 3.0}},
            {"User": {"old": True}},
        ]
        assert offers[0].actions == [None] * arms
        np.testing.assert_array_equal(log.features(slice(0, 1)), log.features(slice(2, 3)))
        assert not np.array_equal(log.features(slice(0, 1)), log.features(slice(1, 2)))


def test_decisions_as_json_have_the_probabilities_of_all_actions(tmp_path):
    path = tmp_path / "log.json"
    other = {**EVENT, "_label_cost": 0, "_label_Action": None, "_label_probability": 0.8}
    lines = [EVENT, {"RewardValue": 1.0, "EventId": "e9"}, {**EVENT, "_skipLearn": True}, other]
    path.write_text("\n".join([*map(json.dumps, lines), "\n"]))
    log = es.Log.read_dsjson(path)
    assert log.excluded == {vw.WITHOUT: 1, vw.SKIPPED: 1}
    np.testing.assert_array_equal(log.chosen, [1, 1])
    np.testing.assert_array_equal(log.outcome, [1.0, 0.0])
    assert log.propensities is not None
    np.testing.assert_allclose(log.propensities, [[0.15, 0.8, 0.05]] * 2)
    offer = next(log.offers())
    assert offer.context == {"User": {"device": "phone", "hour": 8}}
    assert offer.actions == [
        {"Action": {"kind": "news", "_text": ["of", "the", "day"]}},
        {"Action": {"kind": "sport", "at": {"0": 0.5, "1": 1}}},
        {"Action": {"tags": ["a", "b"]}},
    ]
    path.write_text(json.dumps({**EVENT, "p": [0.8004, 0.15, 0.05]}))  # as far as numbers round
    shares = es.Log.read_dsjson(path).propensities
    assert shares is not None
    assert shares.sum() == pytest.approx(1.0, abs=1e-12)
    few = {name: value for name, value in EVENT.items() if name not in ("p", "_labelIndex")}
    path.write_text(json.dumps(few))
    log = es.Log.read_dsjson(path)
    assert log.propensities is None
    assert (log.chosen[0], log.propensity[0]) == (1, 0.8)


@pytest.mark.parametrize(
    ("text", "arms", "message"),
    [
        (ADF.replace("0.5 |", "1.5 |"), None, "line 3: a label must be action:cost:probability"),
        (ADF.replace("0.75", "0"), None, "line 6: a label must be"),
        (ADF.replace("1:0.5:0.75", "1:nan:0.75"), None, "got '1:nan:0.75'"),
        (ADF.replace("1:0.5:0.75", "x:1:0.75"), None, "line 6: a label must be"),
        (ADF.replace("1:0.5:0.75", "1:1:0.75:2"), None, "line 6: a label must be"),
        (ADF.replace("\n|", "\n0:1:1 |", 1), None, "line 3: an example of --cb_adf has one label"),
        (ADF.replace("\n\n", "\n", 1), None, "line 4: the shared line must be the first"),
        ("shared |A x\n\n|A y\n", None, "line 1: an example must have actions, got none"),
        ("|A x:inf\n1:1:1 |A\n", None, "line 1: a feature must be finite, got 'x:inf'"),
        ("|A:x y\n1:1:1 |A\n", None, "line 1: could not convert string to float"),
        ("|A x\n\n", None, "can be evaluated: 1 times outcome missing"),
        ("", None, "can be evaluated: it is empty"),
        (CB, 2, "line 2: an action must be 1 to 2, got 3"),
        ("0:1:0.5 |A x\n", None, "line 1: an action must be 1 to 1, got 0"),
        ("1:1:0.5 2:1:0.5 |A x\n", None, "line 1: a line of --cb 2 has one cost"),
        (ADF, 3, "line 1: a line of --cb 3 has one cost, got 'shared'; for --cb_adf"),
        (CB, 0, "arms must be at least 1"),
    ],
)
def test_a_mistake_in_a_text_is_told_by_its_line(tmp_path, text, arms, message):
    path = tmp_path / "log.txt"
    path.write_text(text)
    with pytest.raises((ValueError, TypeError)) as caught:
        es.Log.read_vw(path, arms)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"_label_cost": "a"}, "_label_cost must be a finite number, got 'a'"),
        ({"_label_cost": None}, "_label_cost must be a finite number, got None"),
        ({"_label_probability": True}, "_label_probability must be a finite number, got True"),
        ({"_label_probability": 0}, "_label_probability must be above 0 and at most 1, got 0"),
        ({"_label_probability": 0.5}, "_label_probability is 0.5, but p says 0.8"),
        ({"_labelIndex": 2}, "must be one of the 3 actions in _multi, got {'_labelIndex': 2"),
        ({"_labelIndex": None, "_label_Action": 0}, "must be one of the 3 actions"),
        ({"_labelIndex": 3, "_label_Action": 4}, "must be one of the 3 actions"),
        ({"_labelIndex": None, "_label_Action": None}, "got neither"),
        ({"_labelIndex": "1"}, "must be one of the 3 actions"),
        ({"p": [0.8, 0.2]}, "p as many probabilities"),
        ({"a": [2, 1, 4]}, "numbers of actions, 1 to 3"),
        ({"p": [0.8, 0.15, 0.1]}, "p must be at least 0 and sum to 1"),
        ({"p": [0.8, 0.4, -0.2]}, "p must be at least 0 and sum to 1"),
        ({"c": {}}, "it has no '_multi'"),
        ({"c": {"_multi": []}}, "one of the 0 actions"),
    ],
)
def test_a_mistake_in_json_is_told_by_its_line(tmp_path, change, message):
    path = tmp_path / "log.json"
    path.write_text(f"{json.dumps(EVENT)}\n\n{json.dumps(EVENT | change)}\n")
    with pytest.raises((ValueError, TypeError)) as caught:
        es.Log.read_dsjson(path)
    assert f"{path}, line 3: " in str(caught.value)
    assert message in str(caught.value)


def test_files_that_are_not_what_they_should_be_are_told(tmp_path):
    path = tmp_path / "log.json"
    for text, message in [("{}\n{", "line 2: "), ("[1]", "line 1: a line must be an object, got")]:
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            es.Log.read_dsjson(path)
    path.write_text('{"RewardValue": 1}')
    with pytest.raises(ValueError, match="can be evaluated: 1 times lines without _label_cost"):
        es.Log.read_dsjson(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="after line 0"):
        es.Log.read_vw(path)
    packed = tmp_path / "log.gz"
    packed.write_bytes(b"1:1:1 |")
    with pytest.raises(ValueError, match="after line 0"):
        es.Log.read_vw(packed)
    with pytest.raises(FileNotFoundError):
        es.Log.read_vw(tmp_path / "nowhere")


def test_a_log_is_evaluated_in_its_own_words(tmp_path):
    """The youngest article, by a plain loop, and the default agent from the same log."""
    rng, blocks, total = np.random.default_rng(0), [], 0.0
    for _ in range(60):
        ages, chosen = rng.integers(1, 99, 3), int(rng.integers(3))
        paid = float(ages[chosen] < 30)
        label = {chosen: f"0:{-paid}:{1 / 3} "}
        lines = [f"{label.get(k, '')}|Action age:{age} kind={k}" for k, age in enumerate(ages)]
        blocks.append("\n".join([f"shared |User hour:{rng.integers(24)}", *lines]))
        total += 3 * paid * (ages.argmin() == chosen) / 60
    path = tmp_path / "log.txt"
    path.write_text("\n\n".join(blocks))
    log = es.Log.read_vw(path)

    def youngest(offer):
        return min(range(3), key=lambda i: offer.actions[i]["Action"]["age"])

    found = es.evaluate(log, {"youngest": youngest, "new": None})
    assert found["youngest"]["inverse propensity"].value == pytest.approx(total)
    assert np.isfinite(found["new"].best).all()


HERE = Path(__file__).parent
# Sixty decisions that Vowpal Wabbit 9.11.9 made and learned, with costs and probabilities, and the
# average loss it gives for two policies, with -l 0 --cb_type ips -d vw-9.11.txt, or --dsjson:
# --cb_explore_adf --epsilon 1 chooses uniformly, --cb_adf always takes the first action.
UNIFORM, FIRST = -0.284232, -0.311030


@pytest.mark.parametrize("name", ["vw-9.11.txt", "vw-9.11.json"])
def test_estimates_are_those_of_vowpal_wabbit(name):
    read = es.Log.read_vw if name.endswith("txt") else es.Log.read_dsjson
    log = read(HERE / name)
    assert (len(log), log.arms, log.excluded) == (60, 3, {})
    found = es.evaluate(log, {"uniform": es.Uniform(), "first": lambda offer: 0})
    for name, loss in (("uniform", UNIFORM), ("first", FIRST)):
        estimate = found[name].estimates["inverse propensity"]
        assert estimate.value == pytest.approx(-loss, abs=1e-6)


def test_both_files_of_vowpal_wabbit_say_the_same():
    text, events = es.Log.read_vw(HERE / "vw-9.11.txt"), es.Log.read_dsjson(HERE / "vw-9.11.json")
    for column in ("chosen", "outcome", "propensity", "available"):
        np.testing.assert_allclose(getattr(text, column), getattr(events, column), atol=1e-5)
    one, other = next(text.offers()), next(events.offers())
    assert one.context["User"].keys() == {"device", "hour"}
    assert one.context["User"]["hour"] == other.context["User"]["hour"]
    assert [a["Action"]["age"] for a in one.actions] == [a["Action"]["age"] for a in other.actions]


def test_lines_of_which_others_were_dropped_are_told(tmp_path):
    path = tmp_path / "log.json"
    path.write_text("\n".join(json.dumps({**EVENT, "pdrop": 0.5}) for _ in range(2)))
    assert len(es.Log.read_dsjson(path)) == 2  # all of them alike: nothing to be told
    path.write_text("\n".join(json.dumps({**EVENT, "pdrop": p}) for p in (0.5, None, 0.25)))
    with pytest.warns(UserWarning, match=r"have 3 values of pdrop, from 0.0 to 0.5: of some"):
        es.Log.read_dsjson(path)


def test_many_decisions_are_read_in_parts(monkeypatch):
    parts, rng = Ragged(), np.random.default_rng(0)
    given = [rng.random(int(rng.integers(1, 5))) for _ in range(40)]
    for one in given:
        parts.add(one)
    whole = parts[:]
    monkeypatch.setattr("ensemble_sampling.evaluation.said.CHUNK", 7)
    np.testing.assert_array_equal(parts[:], whole)
    np.testing.assert_array_equal(parts[5:29], whole[5:29])
    for one, row in zip(given, whole, strict=True):
        np.testing.assert_array_equal(row, [*one, *[0.0] * (parts.shape[1] - len(one))])
