"""Recipes: chosen techniques with their options, as YAML that users keep, diff and review.

    schema: 1
    techniques:
      precision: {dtype: bfloat16}
      fused_optimizer: {}
    fingerprint:
      torch: 2.13.0

A technique may also be switched with `true` (all options at their default) or `false` (left out).
"""

from __future__ import annotations

import dataclasses
import difflib
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from fulltilt.errors import RecipeError
from fulltilt.records.request import TechniqueChoice

RECIPE_SCHEMA = 1
_TOP_KEYS = ("schema", "techniques", "fingerprint", "command", "notes")

OptionsOf = Mapping[str, type]
"""Technique -> the dataclass of its options."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """A checked recipe."""

    techniques: tuple[TechniqueChoice, ...] = ()
    fingerprint: dict[str, str] = dataclasses.field(default_factory=dict)
    """Where it was found best: torch, device, model, command."""


def read_recipe(path: Path, options_of: OptionsOf) -> Recipe:
    """The recipe in the file at `path`.

    Raises:
        RecipeError: with line, allowed values and nearest name, when it cannot be used.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path} is not a text file in UTF-8: {error.reason} at byte {error.start}") from error
    except OSError as error:
        raise RecipeError(
            f"the recipe {path} cannot be read: {error.strerror or error}",
            hint="`fulltilt tune -- CMD` writes one; its path is the last line it prints.",
        ) from error
    return parse_recipe(text, options_of, source=str(path))


def parse_recipe(text: str, options_of: OptionsOf, *, source: str = "recipe") -> Recipe:
    """The recipe that `text` holds; errors as in `read_recipe`."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        plain = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{source}:{mark.line + 1}" if mark is not None else source
        raise RecipeError(f"{where}: not YAML: {getattr(error, 'problem', error)}") from error
    return recipe_from(plain if plain is not None else {}, options_of, source=source, lines=_lines_of(node))


def recipe_from(
    plain: Any, options_of: OptionsOf, *, source: str = "recipe", lines: Mapping[tuple[str, ...], int] | None = None
) -> Recipe:
    """The recipe in a mapping, as read from YAML or made in Python; errors as in `read_recipe`."""
    where = _Places(source, lines or {})
    if not isinstance(plain, Mapping):
        raise RecipeError(f"{source}: a recipe is a mapping with the keys {', '.join(_TOP_KEYS)}, not {plain!r}")
    for key in plain:
        if key not in _TOP_KEYS:
            raise RecipeError(f"{where(key)}: unknown key {key!r}{_suggest(key, _TOP_KEYS)}")
    _check_schema(plain.get("schema", RECIPE_SCHEMA), where("schema"))
    techniques = plain.get("techniques") or {}
    if not isinstance(techniques, Mapping):
        raise RecipeError(f"{where('techniques')}: techniques is a mapping from name to options, not {techniques!r}")
    chosen = (_choice(str(name), given, options_of, where) for name, given in techniques.items())
    fingerprint = plain.get("fingerprint") or {}
    if not isinstance(fingerprint, Mapping):
        raise RecipeError(f"{where('fingerprint')}: fingerprint is a mapping, not {fingerprint!r}")
    return Recipe(
        techniques=tuple(choice for choice in chosen if choice is not None),
        fingerprint={str(key): str(value) for key, value in fingerprint.items()},
    )


def write_recipe(recipe: Recipe, comment_of: Callable[[str], str], *, header: str) -> str:
    """The recipe as YAML; `comment_of(technique)` is written behind its line, `header` above everything."""
    lines = [f"# {line}".rstrip() for line in header.splitlines()]
    lines += [f"schema: {RECIPE_SCHEMA}", "techniques:" if recipe.techniques else "techniques: {}"]
    for choice in recipe.techniques:
        options = yaml.safe_dump(choice.options, default_flow_style=True, width=10_000).strip()
        comment = " ".join(comment_of(choice.name).split())
        lines.append(f"  {choice.name}: {options}" + (f"  # {comment}" if comment else ""))
    if recipe.fingerprint:
        lines.append(yaml.safe_dump({"fingerprint": recipe.fingerprint}, sort_keys=False, width=10_000).strip())
    return "\n".join(lines) + "\n"


class _Places:
    """Says where in the source a key stands."""

    def __init__(self, source: str, lines: Mapping[tuple[str, ...], int]) -> None:
        self._source, self._lines = source, lines

    def __call__(self, *path: Any) -> str:
        line = self._lines.get(tuple(str(part) for part in path))
        return f"{self._source}:{line}" if line is not None else self._source


def _check_schema(schema: Any, where: str) -> None:
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise RecipeError(f"{where}: schema is a number from 1 to {RECIPE_SCHEMA}, not {schema!r}")
    if schema > RECIPE_SCHEMA:
        raise RecipeError(
            f"{where}: schema {schema} is newer than this fulltilt, which reads up to {RECIPE_SCHEMA}",
            hint="Update fulltilt, or tune again with this version.",
        )


def _choice(name: str, given: Any, options_of: OptionsOf, where: _Places) -> TechniqueChoice | None:
    if name not in options_of:
        raise RecipeError(
            f"{where('techniques', name)}: unknown technique {name!r}{_suggest(name, options_of)}",
            hint="`fulltilt techniques` lists them.",
        )
    if given is False:
        return None
    if given is True or given is None:
        given = {}
    if not isinstance(given, Mapping):
        raise RecipeError(
            f"{where('techniques', name)}: {name} takes a mapping of options, true or false, not {given!r}"
        )
    return TechniqueChoice(name=name, options=_checked_options(name, given, options_of[name], where))


def _checked_options(name: str, given: Mapping[Any, Any], options: type, where: _Places) -> dict[str, Any]:
    fields = {field.name: field for field in dataclasses.fields(options)}
    for key in given:
        if key not in fields:
            allowed = f"; it takes {', '.join(fields)}" if fields else "; it takes none"
            raise RecipeError(
                f"{where('techniques', name, key)}: {name} has no option {key!r}{_suggest(str(key), fields)}{allowed}"
            )
    hints = typing.get_type_hints(options)
    values = {str(key): _checked_value(name, str(key), value, hints[str(key)], where) for key, value in given.items()}
    return {key: value for key, value in values.items() if value != fields[key].default}


def _checked_value(name: str, key: str, value: Any, hint: Any, where: _Places) -> Any:
    try:
        return TypeAdapter(hint).validate_python(value, strict=True)
    except ValidationError as error:
        says = error.errors()[0]["msg"].lower()
        raise RecipeError(f"{where('techniques', name, key)}: {name}.{key} is {value!r}; {says}") from error


def _suggest(name: Any, known: Any) -> str:
    near = difflib.get_close_matches(str(name), list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _lines_of(node: yaml.Node | None) -> dict[tuple[str, ...], int]:
    return dict(_walk(node, ()))


def _walk(node: yaml.Node | None, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here = (*path, str(key.value))
            yield here, key.start_mark.line + 1
            yield from _walk(value, here)
