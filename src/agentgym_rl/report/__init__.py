"""What is known of runs, for people without the web UI: a list of them, and a page about one.

Reads run folders as data, through the same limits as the UI, and needs no torch.
"""
