"""Untrusted text, run or scored in a process that is locked in.

    parent                     host                                  a process per call
    interpreter.py             host.py                               locks.py
    calls.py   - request ->    imports what calls need, once   ->    locks itself in, then touches
               <- reply   -    watches the call (watch.py)     <-    the text (program.py, scorers)

What holds the text is the kernel, not Python: Landlock (landlock.py) for files, seccomp
(syscalls.py) for everything else. Both are there for every user and inside ordinary containers.
Where one is missing, the sandbox refuses to start. A host never reads a request, only the process
that it forks for it, and that process ends with the call: nothing is kept from one to the next.
Host and process import these modules without any other package.
"""
