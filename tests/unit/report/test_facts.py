import dataclasses

from fulltilt.records.record import PhaseRecord
from fulltilt.records.result import MachineRecord, TuneResult
from fulltilt.report.facts import floor_sentence, machine_facts, phase_shares, site_facts, tune_facts


def test_a_phase_that_was_not_measured_is_not_zero() -> None:
    phases = PhaseRecord(
        num_steps=4, step_seconds=0.1, data_wait=0.0, forward=0.025, backward=None, optimizer=float("nan"), other=0.005
    )
    words = {phase.key: phase.words for phase in phase_shares(phases)}
    assert words["forward"] == "25 ms, 25 %"
    assert words["backward"] == words["optimizer"] == "not measured"
    assert words["data_wait"] != "not measured"


def test_what_is_not_known_of_the_machine_is_left_out(result: TuneResult) -> None:
    bare = MachineRecord(hostname_hash="ab", system="Linux", cpu="", num_cpus=1, memory_bytes=0)
    assert [label for label, _ in machine_facts(bare)] == ["System", "Machine id"]
    assert ("Memory", "32.0 GiB") in machine_facts(result.machine)
    assert ("Threads", "8 torch threads") in machine_facts(result.machine)


def test_the_script_is_described(result: TuneResult) -> None:
    facts = dict(site_facts(result.site))
    assert facts["Model"] == "Transformer, 10,745,088 parameters"
    assert facts["Optimizer"] == "AdamW, for-loop"
    assert facts["Data"] == "TensorDataset, batch size 32, 0 workers"
    assert site_facts(None) == []


def test_an_unmeasured_floor_is_said(result: TuneResult) -> None:
    unmeasured = dataclasses.replace(result, aa_floor=0.0, baseline_step_seconds=0.0)
    assert dict(tune_facts(unmeasured))["A/A floor"] == "not measured"
    assert dict(tune_facts(unmeasured))["Step as it is"] == "not measured"
    assert "not measured" in floor_sentence(0.0)
    assert floor_sentence(0.014) == "Two identical runs differ here by 1.4 %."


def test_what_kept_trials_off_the_users_files_is_a_fact(result: TuneResult) -> None:
    assert "overlay" in dict(tune_facts(result))["Your files"]
    assert "Your files" not in dict(tune_facts(dataclasses.replace(result, protection=None)))
