"""The held-out project tracker: Trac, unmodified, without its version control (tracker.test).

Trac is not a Django project. It keeps a folder and a database per environment of its own, so an
episode is one such environment: a copy of the template's folder, over the episode's database in
memory.

    stand_in.py    what Trac wants of its Python, before it is imported
    database.py    Trac's connection is the one of the current episode
    program.py     builds and serves
    seed.py        fills the tables
"""
