"""A run's processes as actors on the nodes of a Ray cluster (`cluster.type=ray`).

Nothing here is imported without that setting, because `ray` is an extra.
"""
