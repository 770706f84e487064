import pytest

from fulltilt.config.recipe import Recipe, parse_recipe, read_recipe, recipe_from, write_recipe
from fulltilt.errors import RecipeError
from fulltilt.records.request import TechniqueChoice
from fulltilt.techniques import all_specs

OPTIONS = {spec.name: spec.options for spec in all_specs()}


def test_options_equal_to_the_default_are_left_out():
    recipe = parse_recipe("techniques:\n  fused_optimizer: {implementation: fused}\n  precision: true\n", OPTIONS)
    assert recipe.techniques == (TechniqueChoice(name="fused_optimizer"), TechniqueChoice(name="precision"))


def test_false_leaves_a_technique_out():
    assert parse_recipe("techniques: {precision: false}", OPTIONS).techniques == ()


def test_an_empty_file_is_the_empty_recipe():
    assert parse_recipe("", OPTIONS) == Recipe()


def test_what_is_written_reads_back_the_same():
    recipe = Recipe(
        techniques=(TechniqueChoice(name="precision", options={"dtype": "float16"}),), fingerprint={"torch": "2.13.0"}
    )
    text = write_recipe(recipe, lambda name: "1.5x\n# not a new line", header="two\nlines")
    assert parse_recipe(text, OPTIONS) == recipe


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("techniques:\n  precison: true\n", r"recipe:2: unknown technique 'precison'; did you mean 'precision'"),
        ("techniques:\n  precision:\n    dtyp: bfloat16\n", r"recipe:3: precision has no option 'dtyp'; did you mean"),
        ("techniques:\n  precision: {dtype: float7}\n", r"recipe:2: precision.dtype is 'float7'; input should be"),
        ("techniques:\n  cpu_threads: {num_threads: 'two'}\n", r"recipe:2: cpu_threads.num_threads is 'two'"),
        ("technics: {}\n", r"recipe:1: unknown key 'technics'; did you mean 'techniques'"),
        ("schema: 99\n", r"recipe:1: schema 99 is newer than this fulltilt, which reads up to 1"),
        ("schema: one\n", r"recipe:1: schema is a number from 1 to 1, not 'one'"),
        ("techniques: [precision]\n", r"recipe:1: techniques is a mapping"),
        ("techniques: {precision: fast}\n", r"takes a mapping of options, true or false, not 'fast'"),
        ("- precision\n", r"a recipe is a mapping"),
        ("techniques: {precision\n", r"recipe:\d: not YAML"),
    ],
)
def test_a_mistake_is_named_with_its_line_and_what_is_allowed(text, complaint):
    with pytest.raises(RecipeError, match=complaint):
        parse_recipe(text, OPTIONS)


def test_a_missing_file_says_where_recipes_come_from(tmp_path):
    with pytest.raises(RecipeError) as caught:
        read_recipe(tmp_path / "none.yaml", OPTIONS)
    assert "cannot be read" in str(caught.value)
    assert "fulltilt tune" in caught.value.hint


def test_a_binary_file_is_no_recipe(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_bytes(b"\xff\xfe\x00techniques")
    with pytest.raises(RecipeError, match="not a text file in UTF-8"):
        read_recipe(path, OPTIONS)


def test_a_mapping_from_python_is_checked_alike():
    with pytest.raises(RecipeError, match="unknown technique 'speed'"):
        recipe_from({"techniques": {"speed": True}}, OPTIONS)
