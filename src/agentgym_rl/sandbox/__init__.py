"""The Python interpreter tool: code of an agent, run where it can do no harm.

    parent (interpreter.py)                     child (inside.py)
    starts a bare interpreter, own session  ->  limits itself (locks.py), says that it has
    waits, with an eye on clock and disk        then runs the code

What holds the code is the kernel, not Python: Landlock for files, seccomp (syscalls.py) for all
else. Both are for every user and inside ordinary containers. Where one is missing, the tool refuses
to start. The child imports these modules with the standard library alone.
"""
