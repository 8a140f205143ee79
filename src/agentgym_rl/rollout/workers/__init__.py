"""Rollout workers: processes that play a run's episodes, each on an event loop of its own.

pool.py      controller: which worker plays an episode, and who follows one that died
remote.py    controller: one worker, as it is seen from there
replies.py   controller: what the engines say to the episodes of a worker
host.py      worker: plays what it is told to
engine.py    worker: the engine, as its episodes see it
messages.py  what both say to each other
"""
