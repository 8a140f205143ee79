"""Cases that compare our evaluators of WebArena with the original ones (`make_cases.py`)."""
