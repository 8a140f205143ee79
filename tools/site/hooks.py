"""What mkdocs calls while it builds the site: generated pages, files of the repository, diagrams.

- The references of settings and commands are generated; they take the places of pages that say
  this to readers of the repository.
- A link from a page to a file of the repository (`../examples/guess_number.py`) leads to a page
  that shows the file, so the site is complete without the repository.
- Drawings are put into the page itself, where they take the theme's colours.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(REPOSITORY))

from tools.site.command_page import command_page  # noqa: E402 - found by the line above
from tools.site.settings_page import settings_page  # noqa: E402

_LINK = re.compile(r"\]\((?P<target>(?:\.\./)+[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")
_DRAWING = re.compile(r'<img alt="(?P<alt>[^"]*)" src="(?P<src>[^"]*\.svg)"[^>]*>')
_NAMED_SEARCH = 'data-md-component="search" role="dialog" aria-label="Search"'
_LANGUAGES = {".py": "python", ".toml": "toml", ".md": "markdown", ".sh": "bash"}
_AS_PAGES = {"CHANGELOG.md": "about/changelog.md", "CONTRIBUTING.md": "about/contributing.md"}
"""Files of the repository that are pages of the site, at their own places in it."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and one for each file of the repository that a page links to."""
    texts = {file.src_uri: file.content_string for file in files.documentation_pages()}
    texts["reference/settings.md"] = settings_page()
    texts["reference/command-line.md"] = command_page()
    for source, place in _AS_PAGES.items():
        texts[place] = _moved((REPOSITORY / source).read_text(encoding="utf-8"), place)
    for place in ("reference/settings.md", "reference/command-line.md", *_AS_PAGES.values()):
        if (written := files.get_file_from_path(place)) is not None:
            files.remove(written)
        files.append(File.generated(config, place, content=texts[place]))
    linked = {source for place, text in texts.items() for source in _linked(place, text)}
    for source in sorted(linked - set(_AS_PAGES)):
        page = File.generated(config, _source_page(source), content=_shown(source))
        page.inclusion = InclusionLevel.NOT_IN_NAV
        files.append(page)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to files of the repository to the pages that show them."""
    place = page.file.src_uri

    def lead(match: re.Match[str]) -> str:
        source = _target(place, match["target"])
        if source is None:
            return match[0]
        found = _AS_PAGES.get(source) or _source_page(source)
        relative = posixpath.relpath(found, posixpath.dirname(place) or ".")
        return f"]({relative}{match['anchor'] or ''})"

    return _LINK.sub(lead, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put drawings into the page."""

    def draw(match: re.Match[str]) -> str:
        name = posixpath.basename(match["src"])
        svg = (REPOSITORY / "docs" / "images" / name).read_text(encoding="utf-8")
        svg = svg.replace("<svg ", f'<svg role="img" aria-label="{match["alt"]}" ', 1)
        return f'<span class="drawing">{svg}</span>'

    return _DRAWING.sub(draw, html)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Name the theme's search for screen readers."""
    return output.replace('data-md-component="search" role="dialog"', _NAMED_SEARCH)


def on_post_template(output: str, template_name: str, config: MkDocsConfig) -> str:
    """Name the search on the page for wrong addresses too, which is a template of the theme."""
    return output.replace('data-md-component="search" role="dialog"', _NAMED_SEARCH)


def _moved(text: str, place: str) -> str:
    """Return a page of the repository's root with its links as from its place in the site."""
    up = posixpath.relpath(".", posixpath.dirname(place))
    text = re.sub(r"\]\((?![a-z]+:|#|docs/)", f"]({up}/../", text)
    return text.replace("](docs/", f"]({up}/")


def _linked(place: str, text: str) -> list[str]:
    found = (_target(place, match["target"]) for match in _LINK.finditer(text))
    return [source for source in found if source is not None]


def _target(place: str, target: str) -> str | None:
    """Return the path of a linked file in the repository, if it is one outside docs/."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(place), target))
    if path.startswith(("docs/", "..")) or not (REPOSITORY / path).exists():
        return None
    return path


def _source_page(source: str) -> str:
    return f"source/{source.rstrip('/')}.md"


def _shown(source: str) -> str:
    """Return the page that shows a file, or the files of a folder."""
    path = REPOSITORY / source
    lines = [f"# {source}", "", "A file of the repository.", ""]
    if path.is_dir():
        lines[2] = "A folder of the repository."
        for file in sorted(path.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts and _LANGUAGES.get(file.suffix):
                lines += [f"## {file.relative_to(path)}", "", *_block(file), ""]
    else:
        lines += _block(path)
    return "\n".join(lines)


def _block(file: Path) -> list[str]:
    language = _LANGUAGES.get(file.suffix, "text")
    return [f"``````{language}", file.read_text(encoding="utf-8").rstrip(), "``````"]
