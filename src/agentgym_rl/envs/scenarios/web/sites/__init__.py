"""What runs in a site's own process: Django, and what lets many episodes share one process.

The environment's process never imports anything from here; it talks to a site by HTTP
(site_process.py). A folder here is a project: a Django project that one process serves, under one
host or several. A project has

    settings.py    Django's settings; takes what is the same everywhere from base_settings.py
    seed.py        `seed()` fills the empty tables, the same way every time

and nothing else is asked of it. What is not written with Django (trac/) has instead

    program.py     `build(folder)` and `make_application(template, store, token)`

The rest of the house:

    episodes.py        an episode: its database in memory, its lock, clock, draws and folder
    sqlite_backend/    Django's connection is the one of the current episode
    gate.py            which episode a request belongs to; files without Django
    control.py         create, delete, query: for the environment, with a secret token
    steady.py          clock and random texts of an episode instead of the machine's
    sending.py         files and refusals
    fulltext.py        what search engines over FTS5 share
    uploads.py         what an episode uploads is in its own folder
    build.py, serve.py the two programs
"""
