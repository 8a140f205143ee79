"""The held-out forum: django-spirit, unmodified, as a neighbourhood's board (talk.test)."""
