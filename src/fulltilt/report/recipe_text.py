"""The recipe of a result as YAML, with what each line is worth beside it."""

from __future__ import annotations

from fulltilt.config.recipe import Recipe, write_recipe
from fulltilt.records.result import TuneResult
from fulltilt.records.words import TechniqueOutcome
from fulltilt.report.printable import command_line, printable
from fulltilt.report.words import interval_words


def recipe_text(result: TuneResult) -> str:
    """What `recipe.yaml` holds."""
    recipe = Recipe(techniques=result.recipe.techniques, fingerprint=dict(result.recipe.fingerprint))
    header = f"{result.summary}\nRun it: fulltilt run -r recipe.yaml -- {command_line(result.command)}"
    return write_recipe(recipe, lambda name: _gain_of(name, result), header=printable(header))


def _gain_of(name: str, result: TuneResult) -> str:
    for ablation in result.ablation:
        if ablation.name == name and ablation.contribution is not None:
            gain = interval_words(ablation.contribution, result.aa_floor)
            return printable(f"{gain} in this recipe; {ablation.note}".removesuffix("; "))
    for technique in result.techniques:
        if technique.name == name and technique.outcome is TechniqueOutcome.KEPT and technique.speedup is not None:
            return f"{interval_words(technique.speedup, result.aa_floor)} when it was added"
    return ""
