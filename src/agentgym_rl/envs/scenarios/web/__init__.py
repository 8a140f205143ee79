"""Web sites to work in, offline and in a real browser; see env.py."""
