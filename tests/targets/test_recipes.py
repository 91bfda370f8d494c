"""Recipes against modules that are made up: what they need, set and give back."""

from types import ModuleType

import pytest

from pytest_cudalink.targets import StaleRecipeError
from pytest_cudalink.targets.base import recipe_for, recipes
from pytest_cudalink.targets.cuda_core import CudaCore

RECIPES = [recipe for name in ("cuda-core", "numba-cuda", "numba-cuda-mlir") for recipe in recipes(name)]


def module_of(recipe, **names) -> ModuleType:
    """A module as a recipe wants it, with some names changed; `...` removes one."""
    module = ModuleType(recipe.module)
    literals = {"none": None, "true": True, "false": False}
    for name, value in recipe.undecided.items():
        setattr(module, name, literals[value])
    for name in recipe.needs:
        setattr(module, name, object())
    for name, value in names.items():
        delattr(module, name) if value is ... else setattr(module, name, value)
    return module


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: f"{recipe.target} {recipe.versions}")
def test_stale_recipe(recipe) -> None:
    """A name that is gone, or that begins otherwise, is an error that names release, name and remedy."""
    recipe.check(module_of(recipe), "9.9")
    for name in [*recipe.undecided, *recipe.needs]:
        with pytest.raises(StaleRecipeError, match=rf"cannot steer {recipe.target} 9.9: .* has no {name}, which .*"):
            recipe.check(module_of(recipe, **{name: ...}), "9.9")
    for name in recipe.undecided:
        with pytest.raises(StaleRecipeError, match=rf"starts with {name} = 'else'.*Update pytest-cudalink"):
            recipe.check(module_of(recipe, **{name: "else"}), "9.9")


def test_a_release_that_moved_its_switch(monkeypatch) -> None:
    """The target refuses it as its module is imported, and does not steer it in vain."""
    recipe = recipe_for("cuda-core", "1.0.1")
    monkeypatch.setattr(CudaCore, "version", lambda _: "1.0.1")
    moved = module_of(recipe, Linker=type("Linker", (), {}), **{next(iter(recipe.undecided)): ...})
    with pytest.raises(StaleRecipeError, match=r"cannot steer cuda-core 1\.0\.1: .* has no "):
        CudaCore().install(moved)


@pytest.mark.parametrize("recipe", recipes("cuda-core"), ids=lambda recipe: recipe.versions)
def test_recipes_set_and_give_back(recipe) -> None:
    """Each backend sets the same names, and giving back makes them what they were."""
    assert recipe_for("cuda-core", recipe.tested.partition(",")[0]) is recipe
    module = module_of(recipe)
    before = dict(vars(module))
    objects = {"driver": "the driver"}
    for backend in ("driver", "nvjitlink"):
        recipe.apply(module, backend, objects)
        assert vars(module) != before
        recipe.apply(module, None, objects)
        assert vars(module) == before


@pytest.mark.parametrize(
    ("target", "version", "what"),
    [
        *(("cuda-core", "0.6.0", " 0.6.0"), ("cuda-core", "0.3.2", " 0.3.2"), ("numba-cuda", "0.22", " 0.22")),
        ("numba-cuda", "0", ", which is not installed: another package brings its module"),
    ],
)
def test_release_without_a_recipe(target, version, what) -> None:
    """An older release is refused, with the first one that can be steered; numba itself has a module of this name."""
    with pytest.raises(StaleRecipeError, match=rf"cannot steer {target}{what}: expected {target} >="):
        recipe_for(target, version)
