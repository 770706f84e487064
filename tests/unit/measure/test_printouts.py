import math

import pytest

from fulltilt.measure.printouts import names_left_out, printed_series


def seen(*lines):
    return [(series.label, series.values) for series in printed_series(lines)]


@pytest.mark.parametrize(
    ("line", "numbers"),
    [
        ("epoch 3 val loss 1.234 acc 0.87 (1.2s, 34.5 it/s)", {"val loss": 1.234, "acc": 0.87}),
        ("step 250: train loss 4.1, val loss 4.2, time 12.1ms, mfu 3.2%", {"train loss": 4.1, "val loss": 4.2}),
        ("{'loss': 0.31, 'eval_loss': 1.2e-3, 'epoch': 1.0, 'eval_runtime': 3.1}", {"loss": 0.31, "eval loss": 1.2e-3}),
        ('{"valLoss": 0.5, "train_samples_per_second": 99.1}', {"val Loss": 0.5}),
        ("Epoch 3/10 | train 1.23 | val 1.3 | acc: 87.5% | lr 3.0e-04", {"train": 1.23, "val": 1.3, "acc": 87.5}),
        ("2026-01-01 12:00:00,123 INFO loss=-0.3", {"INFO loss": -0.3}),
        ("iter 10: loss nan", {"loss": math.nan}),
        ("perplexity 1,234.5 after 12 GB", {"perplexity": 1234.5}),
        ("Test Acc@1 76.1", {"Test Acc 1": 76.1}),
        ("\x1b[32mloss\x1b[0m 0.5", {"loss": 0.5}),
        (" 10%|# | loss=0.9\r100%|##| 10/10 [00:01<00:00, 9.5it/s, loss=0.3]", {"loss": 0.3}),
        ("error rate 0.2, learning rate 0.1", {"error rate": 0.2}),
    ],
)
def test_measures_are_found_by_their_names(line, numbers):
    found = dict(seen(line))
    assert found.keys() == {*numbers}
    assert {label: values[0] for label, values in found.items()} == pytest.approx(dict(numbers), nan_ok=True)


@pytest.mark.parametrize(
    "line",
    [
        "took 12.3",
        "train time 3.4",
        "max steps 100, epoch 7",
        "throughput 123 tokens/s",
        "peak memory 1.2 GiB",
        "best epoch 3",
        "123 0.4 0.5",
        "fulltilt: loss 3",
        "loss" + " " * 3000 + "1.0",
        "",
    ],
)
def test_times_counters_and_nameless_numbers_are_not(line):
    assert seen(line) == []


def test_lines_alike_but_for_their_numbers_are_one_series():
    lines = ["epoch 1 loss 2.0", "epoch 2 loss 1.0", "saved", "final loss 0.5"]
    assert seen(*lines) == [("loss", (2.0, 1.0)), ("final loss", (0.5,))]


def test_the_resolution_is_that_of_the_coarsest_value():
    (series,) = printed_series(["loss 1.234", "loss 12.3"])
    assert series.resolution == pytest.approx(0.1)
    (series,) = printed_series(["loss 1.2e-4"])
    assert series.resolution == pytest.approx(1e-5)


def test_what_has_a_name_but_no_known_one_is_told():
    assert names_left_out(["wobble 3.2 loss 1.0", "wobble 3.3 loss 0.9", "took 3 s"]) == ("wobble",)
