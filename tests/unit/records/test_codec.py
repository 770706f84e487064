import math
from dataclasses import dataclass

import pytest

from fulltilt.records.codec import CodecError, from_json, to_json
from fulltilt.records.journal import ComparisonRecord, TrialRecord, VerdictRecord
from fulltilt.records.request import EvidenceRequest, Request, TechniqueChoice, TrialRequest
from fulltilt.records.words import Numerics, Outcome, Role


def test_a_nested_record_comes_back_equal():
    request = Request(
        techniques=(TechniqueChoice(name="precision", options={"dtype": "bfloat16"}),),
        trial=TrialRequest(trial="t1", directory="/d", control="/c", evidence=EvidenceRequest(reseed=3)),
    )
    assert from_json(Request, to_json(request)) == request


def test_nan_and_infinities_survive():
    @dataclass(frozen=True)
    class Numbers:
        values: tuple[float, ...]

    text = to_json(Numbers(values=(float("nan"), float("inf"), -float("inf"), 1.5)))
    back = from_json(Numbers, text)
    assert math.isnan(back.values[0])
    assert back.values[1:] == (float("inf"), -float("inf"), 1.5)


def test_a_future_schema_is_refused_by_number():
    with pytest.raises(CodecError, match="schema 99"):
        from_json(Request, '{"schema": 99}')


def test_an_unknown_key_of_a_newer_writer_is_ignored():
    assert from_json(Request, '{"invented_later": 1}') == Request()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "not JSON"),
        ("[]", "must be an object"),
        ('{"techniques": 3}', "techniques must be a list"),
        ('{"techniques": [{}]}', "lacks name"),
        ('{"techniques": [{"name": 4}]}', "name must be str"),
    ],
)
def test_what_is_wrong_is_named(text, complaint):
    with pytest.raises(CodecError, match=complaint):
        from_json(Request, text)


def test_an_unknown_word_is_answered_with_the_known_ones():
    line = to_json(TrialRecord(trial="t", role=Role.BASELINE, techniques=(), outcome=Outcome.ENDED))
    with pytest.raises(CodecError, match="it can be finished, ended"):
        from_json(TrialRecord, line.replace('"ended"', '"vanished"'))


def test_a_verdict_says_class_in_json():
    verdict = VerdictRecord(numerics=Numerics.ROUNDING, kept=True, evidence=())
    assert '"class":"ROUNDING"' in to_json(verdict)
    assert from_json(VerdictRecord, to_json(verdict)) == verdict


def test_a_comparison_without_pairs_comes_back():
    record = ComparisonRecord(key="k", a=(), b=(), failure="out of memory", failure_outcome=Outcome.OUT_OF_MEMORY)
    assert from_json(ComparisonRecord, to_json(record)) == record
