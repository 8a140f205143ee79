"""What every configuration model shares: frozen, unknown keys refused, docstrings as help."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidatorFunctionWrapHandler, model_validator

_Config = TypeVar("_Config", bound="BaseConfig")


class BaseConfig(BaseModel):
    """A frozen section of the configuration."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        protected_namespaces=(),
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_bool_as_number(cls, table: object) -> object:
        """Let `training.steps=true`, which pydantic would read as 1, fail as any text does."""
        if not isinstance(table, dict):
            return table
        numbers = {
            name
            for name, field in cls.model_fields.items()
            if {int, float} & (types := {field.annotation, *get_args(field.annotation)})
            and bool not in types
        }
        return {
            key: str(value).lower() if isinstance(value, bool) and key in numbers else value
            for key, value in table.items()
        }


def or_own(base: type[BaseModel]) -> Callable[[object, ValidatorFunctionWrapHandler], object]:
    """Return a validator of a union on `type` that also accepts the settings of users' classes.

    These are validated before (own_sections.py) and are all subclasses of `base`.
    """

    def validate(value: object, handler: ValidatorFunctionWrapHandler) -> object:
        return value if isinstance(value, base) else handler(value)

    return validate


def laid_over(base: _Config, changes: BaseConfig) -> _Config:
    """Return a section with what `changes` sets, key by key, validated anew.

    What `changes` has only by default is not set, and stays as it is in `base`.
    """
    changed = _changed(base, changes)
    return changed.model_validate(changed.model_dump())


def _changed(base: _Config, changes: BaseConfig) -> _Config:
    update = dict[str, object]()
    for key in changes.model_fields_set:
        old, new = getattr(base, key), getattr(changes, key)
        update[key] = _changed(old, new) if isinstance(new, BaseConfig) else new
    return base.model_copy(update=update)
