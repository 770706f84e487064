"""How far is too far: every constant of a verdict, with its reason. docs/verdict.md has the table they were set by."""

FLOAT32_ROUNDING = 2.0**-24
FLOAT64_ROUNDING = 2.0**-53
"""One rounding of a training whose parameters are all in float64: its floors are so many times lower."""

FACTOR = 4.0
"""A buffer or an input of a candidate may be this many times as far from the baseline as the runs of its envelope. An
envelope is the largest of few (two or three) runs, and one number of a run varies."""

EACH_FACTOR = 6.0
"""The same for what is the worst of many: the gradient or the update of one parameter, the loss or the gradient norm of
one step. bfloat16 autocast, which rounds in every operation and not only once, needed 4.9 for a loss and 3.8 for a bias
of 32 elements that Adam moves by the sign of its gradient. A parameter whose gradient is lost is off by all of its
norm, 7 times an envelope of 14 %, the widest that was seen."""

TOTAL_FACTOR = 3.0
"""The same over all parameters together, where chance averages out. channels_last needed 2.2, bfloat16 autocast 1.5."""

SAMPLING_TOTAL_FACTOR = 2.0
"""The same when the envelope is of other random draws: the candidate is then one more draw of the same kind, and
distances between draws are alike, but two draws are few: at 1.5, data in another order was refused in one of five runs.
What is small is seen when the recipe is examined with the script's own draws."""

MEAN_FACTOR = 4.0
"""The mean of a curve may be this many times as far from the middle of three or more draws as these are apart. At 3,
2 of 90 harmless draws were refused; at 4, none."""

EXACT_FLOOR = 1e-12
"""Relative. Norms and sketches are sums in float64, whose order may follow the number of threads; a single float32
value that differs in its last bit moves them by more unless the tensor has over 10^9 elements."""

ROUNDING_FLOOR = 64 * FLOAT32_ROUNDING
"""Relative (3.8e-6). A perturbation of the weights rounds once; sums of 10^3 to 10^5 float32 terms in another order
round more: channels_last convolutions differed by 1.8e-6 in the gradient where the envelope was 4e-7."""

UPDATE_FLOOR = 8 * FLOAT32_ROUNDING
"""Of the weights' own norm: the rounding of eight additions to a float32 weight, all in one direction."""

LOSS_FLOOR = 16 * FLOAT32_ROUNDING
"""Of the loss: eight units in the last place. A mean over a batch in another order differs by one to four."""

LOOK_BACK_STEPS = 8
LOOK_AHEAD_STEPS = 3
"""The envelope of a curve at step t is its maximum from step t - 8 to t + 3: one scalar of two runs can agree by luck.
No further back, as a loss that has fallen to a hundredth is not judged by the noise that it had at first."""

SCALE_CEILING = 0.07
"""For envelopes without other draws. Rounding turns an update but does not lengthen it: the length along the baseline's
update differed by up to 2 % under bfloat16. An envelope is not believed above this unless its own runs reach half of
it: a learning rate that is 10 % off shortens or lengthens by 9 to 11 %."""

UNDETERMINED_RELATIVE = 0.25
UNDETERMINED_SHARE = 1e-3
"""A parameter whose gradient turns by more than a quarter of itself when weights are merely rounded, and is below a
thousandth of all gradients, has a true gradient of zero (the bias of keys in attention, a bias before BatchNorm).
What it does is rounding noise, which Adam turns into full-length steps, so that only its size can be judged."""

NOISY_REPEAT = 0.05
"""Relative update distance between two runs of the untouched command above which it is said not to repeat itself."""

LOSSY_SHARE_OF_LOSS = 0.15
LOSSY_SHARE_OF_RANGE = 0.5
"""A LOSSY candidate's loss may be off by this share of the loss, plus this share of how far the baseline's losses
range: generous, because it is another computation, but a doubled, stuck or diverging loss is beyond it."""

DISTINCT_ROWS_SHARE = 0.05
"""So many distinct samples fewer than in the baseline are chance, beside what its own draws differ by."""
