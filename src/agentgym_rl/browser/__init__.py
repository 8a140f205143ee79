"""A real browser behind plain text: pages become observations, lines of text become actions.

One Chromium serves many episodes (host.py), each in a context of its own (session.py). A page is
read as a tree of what an assistive program would see (page_tree.py) and written in one of two
layouts (layouts/). What an action means is in actions.py and acting.py. Knows no environment.
"""
