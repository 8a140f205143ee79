"""The documentation site: what of it is generated from the code, and how it is built.

`mkdocs.yml` names the pages; `hooks.py` adds the generated ones when the site is built, so none of
them can be out of date. `python -m mkdocs build --strict` (or `make docs`) builds it.
"""
