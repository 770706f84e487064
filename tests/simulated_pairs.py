"""Pairs of processes that exist only as numbers."""

import numpy

from fulltilt.records.journal import Block, PairedBlock, PairRecord


def block(seconds, foreign=0.0, steps=10):
    return Block(num_steps=steps, seconds=seconds, foreign_cpu_seconds=foreign)


def pair_of(log_ratios, busy=()):
    blocks = tuple(
        PairedBlock(a=block(float(numpy.exp(ratio))), b=block(1.0), a_first=i % 2 == 0, busy=i in busy)
        for i, ratio in enumerate(log_ratios)
    )
    return PairRecord(a_trial="a", b_trial="b", blocks=blocks)


def simulated_pair(dice, *, speedup=1.0, num_blocks=10, restart_sd=0.025, block_sd=0.08, rho=0.5, spikes=0.0):
    """AR(1) block noise with a slow drift, around a level that a restart moves; some blocks 2 to 100 times as long."""
    noise = numpy.zeros(num_blocks)
    noise[0] = dice.normal(0, block_sd)
    for i in range(1, num_blocks):
        noise[i] = rho * noise[i - 1] + dice.normal(0, block_sd * (1 - rho**2) ** 0.5)
    drift = numpy.linspace(-1, 1, num_blocks) * dice.normal(0, 0.01)
    level = numpy.log(speedup) + dice.normal(0, restart_sd)
    ratios = level + noise + drift
    struck = dice.random(num_blocks) < spikes
    sign = dice.choice([-1, 1], num_blocks)
    return pair_of(ratios + struck * sign * numpy.log(dice.uniform(2, 100, num_blocks)))
