"""What every configuration model shares: frozen, unknown keys refused, docstrings as help."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import BaseModel, ConfigDict, ValidatorFunctionWrapHandler


class BaseConfig(BaseModel):
    """A frozen section of the configuration."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        protected_namespaces=(),
    )


def or_own(base: type[BaseModel]) -> Callable[[object, ValidatorFunctionWrapHandler], object]:
    """Return a validator of a union on `type` that also accepts the settings of users' classes.

    These are validated before (own_sections.py) and are all subclasses of `base`.
    """

    def validate(value: object, handler: ValidatorFunctionWrapHandler) -> object:
        return value if isinstance(value, base) else handler(value)

    return validate
