import yaml

from fulltilt.records.result import TuneResult
from fulltilt.report.recipe_text import recipe_text


def test_the_recipe_is_yaml_with_the_worth_of_each_line(result: TuneResult) -> None:
    text = recipe_text(result)
    plain = yaml.safe_load(text)
    assert plain["techniques"] == {"precision": {"dtype": "bfloat16"}, "fused_optimizer": {}}
    assert "precision: {dtype: bfloat16}  # 1.39x [1.35, 1.43] in this recipe; pays" in text


def test_hostile_words_do_not_leave_the_comments(every_outcome: TuneResult) -> None:
    plain = yaml.safe_load(recipe_text(every_outcome))
    assert set(plain) == {"schema", "techniques", "fingerprint"}
