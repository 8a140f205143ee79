"""Generates the built-in corpus and questions of `searchqa`.

    pip install -r tools/embedded_corpus/requirements.txt
    python -m tools.embedded_corpus.build     # from the repository root

Facts (films, cities, countries) become a world, a world becomes passages and drafts of questions,
and `choose` picks the questions. `screen` lists the drafts that a single search gives away. The
package itself only reads the output (docs/deep-search.md).
"""
