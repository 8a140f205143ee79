"""The forms in which an answer counts as right: the canonical one first."""

from __future__ import annotations

from benchmarks.shortcuts import plain
from tools.embedded_corpus.countries import Country
from tools.embedded_corpus.films import Film


def with_plain_forms(*forms: str) -> tuple[str, ...]:
    """Return the forms, then each without accents, all once."""
    return tuple(dict.fromkeys((*forms, *map(plain, forms))))


def film_answers(film: Film) -> tuple[str, ...]:
    """Return the bare name, and the name with the year, as titles and lists have it."""
    name = film.name
    return with_plain_forms(name, f"{name} ({film.year})", f"{name} ({film.year} film)")


def minutes_answers(minutes: int) -> tuple[str, ...]:
    """Return "161 minutes" and its other forms, e.g. "2 hours 41 minutes"."""
    unit = "minute" if minutes == 1 else "minutes"
    forms = [f"{minutes} {unit}", str(minutes), f"{minutes} min", f"{minutes} mins"]
    hours, rest = divmod(minutes, 60)
    if hours:
        whole = f"{hours} hour{'s' if hours > 1 else ''}"
        forms += (
            [f"{whole} {rest} minutes", f"{whole} and {rest} minutes", f"{hours}h {rest}m"]
            if rest
            else [whole]
        )
    return tuple(forms)


def years_answers(years: float) -> tuple[str, ...]:
    """Return "29.3 years" and "29.3"."""
    return (f"{years:g} years", f"{years:g}")


def count_answers(count: int) -> tuple[str, ...]:
    """Return "493,465" and "493465"."""
    return (f"{count:,}", str(count))


def country_answers(country: Country) -> tuple[str, ...]:
    """Return all names of the country, with "the" handled by whoever compares."""
    return with_plain_forms(country.name, *country.other_names)
