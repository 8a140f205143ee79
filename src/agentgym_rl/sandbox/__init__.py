"""Runs or scores untrusted text in a locked process.

    parent                     host                                  a process per call
    interpreter.py             host.py                               locks.py
    calls.py   - request ->    imports what calls need, once   ->    locks itself in, then touches
               <- reply   -    watches the call (watch.py)     <-    the text (program.py, scorers)

The kernel confines the text, not Python: Landlock (landlock.py) for files, seccomp (syscalls.py)
for everything else. Every user has both, also inside ordinary containers; without either the
sandbox refuses to start. A host never reads a request: only the process that it forks does, and
that process ends with the call, so no call can affect the next. Host and process import these
modules without any other package.
"""
