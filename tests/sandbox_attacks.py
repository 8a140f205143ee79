"""Programs that try to leave the sandbox, for tests/security. Each prints ESCAPED where it could.

Words in capitals stand for the target that the test sets up: VICTIM (a file that everybody may
write), SHARED (a folder where everybody may make files), LIBRARY (a file that the sandbox may
read), PORT (a TCP port that listens), HOME (the user's folder), SOCKET (a listening Unix socket's path), ABSTRACT (the name
of an abstract one).
"""

# ruff: noqa: E501 - an attempt stays on its line

from __future__ import annotations

import platform

_IS_X86 = platform.machine() == "x86_64"

NUMBERS = {
    # name: (x86-64, ARM64)
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "capset": (126, 91),
    "chroot": (161, 51),
    "clone": (56, 220),
    "clone3": (435, 435),
    "copy_file_range": (326, 285),
    "delete_module": (176, 106),
    "epoll_create1": (291, 20),
    "eventfd2": (290, 19),
    "execveat": (322, 281),
    "fanotify_init": (300, 262),
    "fsopen": (430, 430),
    "init_module": (175, 105),
    "inotify_init1": (294, 26),
    "io_setup": (206, 0),
    "io_uring_setup": (425, 425),
    "ioprio_set": (251, 30),
    "kcmp": (312, 272),
    "keyctl": (250, 219),
    "landlock_create_ruleset": (444, 444),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "mq_open": (240, 180),
    "msgget": (68, 186),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "openat2": (437, 437),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "reboot": (169, 142),
    "seccomp": (317, 277),
    "semget": (64, 190),
    "setns": (308, 268),
    "settimeofday": (170, 170),
    "shmget": (29, 194),
    "signalfd4": (289, 74),
    "socket": (41, 198),
    "splice": (275, 76),
    "swapon": (167, 224),
    "timerfd_create": (283, 85),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vmsplice": (278, 75),
}


def _call(name: str, arguments: str = "0, 0, 0, 0, 0") -> str:
    """Return code that makes a system call itself; it got through if the kernel does not refuse."""
    number = NUMBERS[name][0 if _IS_X86 else 1]
    return (
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        f"result = libc.syscall({number}, {arguments})\n"
        # A call that is let in may still find fault with its arguments; only these are refusals.
        "if result >= 0 or ctypes.get_errno() not in (1, 38): print('ESCAPED', result, ctypes.get_errno())"
    )


FILES = {
    "truncating with access mode 3": "import os\nos.open('VICTIM', 3 | os.O_TRUNC)\nprint('ESCAPED')",
    "access mode 3": "import os\nos.open('VICTIM', 3)\nprint('ESCAPED')",
    "truncating while reading": "import os\nos.open('VICTIM', os.O_RDONLY | os.O_TRUNC)\nprint('ESCAPED')",
    "truncating the library": "import os\nos.open('LIBRARY', os.O_RDONLY | os.O_TRUNC)\nprint('ESCAPED')",
    "truncating the library with mode 3": "import os\nos.open('LIBRARY', 3 | os.O_TRUNC)\nprint('ESCAPED')",
    "writing the library": "open('LIBRARY', 'a').write('ESCAPED')",
    "truncating by name": "import os\nos.truncate('VICTIM', 0)\nprint('ESCAPED')",
    "truncating an open file": "import os\nos.ftruncate(os.open('LIBRARY', os.O_RDONLY), 0)\nprint('ESCAPED')",
    "files without a name": "import os\nos.open('SHARED', os.O_TMPFILE | os.O_RDWR)\nprint('ESCAPED')",
    "files without a name, here": "import os\nos.open('.', os.O_TMPFILE | os.O_WRONLY)\nprint('ESCAPED')",
    "unlinked files": "import os\nfd = os.open('SHARED/x', os.O_CREAT | os.O_RDWR)\nos.unlink('SHARED/x')\nprint('ESCAPED')",
    "mapped files": "import mmap, os\nfd = os.open('SHARED/x', os.O_CREAT | os.O_RDWR)\nos.ftruncate(fd, 10**8)\nmmap.mmap(fd, 10**8)\nprint('ESCAPED')",
    "a shared mapping of the library": "import mmap, os\nfd = os.open('LIBRARY', os.O_RDONLY)\nm = mmap.mmap(fd, 4096, prot=3)\nm[0] = 65\nprint('ESCAPED')",
    "making a file": "open('SHARED/x', 'x')\nprint('ESCAPED')",
    "making a file, here": "open('x', 'x')\nprint('ESCAPED')",
    "a temporary file": "import tempfile\ntempfile.TemporaryFile()\nprint('ESCAPED')",
    "shared memory": "from multiprocessing import shared_memory as s\ns.SharedMemory(create=True, size=10)\nprint('ESCAPED')",
    "memory files": "import os\nos.memfd_create('x')\nprint('ESCAPED')",
    "writing": "open('VICTIM', 'w').write('ESCAPED')",
    "appending": "open('VICTIM', 'a').write('ESCAPED')",
    "deleting": "import os\nos.unlink('VICTIM')\nprint('ESCAPED')",
    "moving in": "import os\nos.rename('VICTIM', 'x')\nprint('ESCAPED')",
    "moving out": "import os\nos.rename('LIBRARY', 'SHARED/x')\nprint('ESCAPED')",
    "exchanging": "import os\nos.replace('LIBRARY', 'VICTIM')\nprint('ESCAPED')",
    "changing rights": "import os\nos.chmod('VICTIM', 0o700)\nprint('ESCAPED')",
    "changing rights of an open file": "import os\nos.fchmod(os.open('LIBRARY', os.O_RDONLY), 0o777)\nprint('ESCAPED')",
    "changing owners": "import os\nos.chown('VICTIM', 1, 1)\nprint('ESCAPED')",
    "changing times": "import os\nos.utime('VICTIM', (0, 0))\nprint('ESCAPED')",
    "attributes": "import os\nos.setxattr('VICTIM', 'user.x', b'x')\nprint('ESCAPED')",
    "reading": "print('ESCAPED', open('VICTIM').read())",
    "reading /etc/passwd": "print('ESCAPED', open('/etc/passwd').read())",
    "reading /etc/shadow": "print('ESCAPED', open('/etc/shadow').read())",
    "reading the user's folder": "import os\nprint(os.listdir('HOME'), 'ESCAPED')",
    "listing the root": "import os\nprint(os.listdir('/'), 'ESCAPED')",
    "listing the shared folder": "import os\nprint(os.listdir('SHARED'), 'ESCAPED')",
    "up from the folder": "import os\nprint(os.listdir('..'), 'ESCAPED')",
    "up from the library": "import os\nlibrary = os.open(os.path.dirname('LIBRARY'), os.O_RDONLY)\nos.open('../../../../../../../../../../etc/passwd', os.O_RDONLY, dir_fd=library)\nprint('ESCAPED')",
    "up from a descriptor of the host": "import os\nfor fd in range(3, 64):\n  try: os.open('../../../../../../../../../../etc/passwd', os.O_RDONLY, dir_fd=fd); print('ESCAPED')\n  except OSError: pass",
    "another folder": "import os\nos.chdir('SHARED')\nprint('ESCAPED')",
    "a handle on the root": "import os\nos.open('/', os.O_PATH)\nprint('ESCAPED')",
    "a symbolic link": "import os\nos.symlink('VICTIM', 'SHARED/x')\nprint('ESCAPED')",
    "a hard link": "import os\nos.link('VICTIM', 'SHARED/x')\nprint('ESCAPED')",
    "a link to the library": "import os\nos.link('LIBRARY', 'SHARED/x')\nprint('ESCAPED')",
    "folders": "import os\nos.mkdir('SHARED/x')\nprint('ESCAPED')",
    "named pipes": "import os\nos.mkfifo('SHARED/x')\nprint('ESCAPED')",
    "device nodes": "import os\nos.mknod('SHARED/x', 0o20666, os.makedev(1, 1))\nprint('ESCAPED')",
    "a device": "open('/dev/zero', 'rb')\nprint('ESCAPED')",
    "the null device": "open('/dev/null', 'w')\nprint('ESCAPED')",
    "the terminal": "open('/dev/tty')\nprint('ESCAPED')",
    "openat2": _call("openat2", "-100, b'VICTIM', (ctypes.c_uint64 * 3)(2, 0, 0), 24"),
    "a file's handle": _call("name_to_handle_at", "-100, b'VICTIM', 0, 0, 0"),
    "opening by handle": _call("open_by_handle_at", "-100, (ctypes.c_char * 200)(), 0"),
    "copying within the kernel": _call("copy_file_range", "0, 0, 1, 0, 10, 0"),
    "splicing": _call("splice", "0, 0, 1, 0, 10, 0"),
    "splicing memory": _call("vmsplice", "1, 0, 0, 0"),
}  # fmt: skip

PROCESSES = {
    "fork": "import os\nif os.fork() == 0: os._exit(0)\nprint('ESCAPED')",
    "fork by libc": "import ctypes\nif ctypes.CDLL(None).fork() >= 0: print('ESCAPED')",
    "vfork by libc": "import ctypes\nif ctypes.CDLL(None).vfork() >= 0: print('ESCAPED')",
    "a fork bomb": "import os\nfor _ in range(10000):\n  try: os.fork(); print('ESCAPED')\n  except OSError: pass",
    "clone": _call("clone", "17, 0, 0, 0, 0"),
    "clone3": _call("clone3", "(ctypes.c_uint64 * 11)(0, 0, 0, 0, 17), 88"),
    "threads": "import _thread\n_thread.start_new_thread(print, ('ESCAPED',))",
    "a program by subprocess": "import subprocess\nsubprocess.run(['/bin/echo', 'ESCAPED'])",
    "a shell by system": "import os\nos.system('echo ESCAPED > SHARED/x')",
    "a shell by exec": "import os\nos.execv('/bin/sh', ['sh', '-c', 'echo ESCAPED'])",
    "posix_spawn": "import os\nos.posix_spawn('/bin/echo', ['echo', 'ESCAPED'], {})",
    "execveat": _call("execveat", "-100, b'/bin/true', 0, 0, 0"),
    "killing the host": "import os\nos.kill(os.getppid(), 9)\nprint('ESCAPED')",
    "killing all": "import os\nos.kill(-1, 9)\nprint('ESCAPED')",
    "killing the group": "import os\nos.killpg(0, 9)\nprint('ESCAPED')",
    "a signal through a pipe's owner": "import fcntl, os\nr, w = os.pipe()\nfcntl.fcntl(r, fcntl.F_SETOWN, os.getppid())\nfcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC)\nos.write(w, b'x')\nprint('ESCAPED')",
    "a handle on the host": "import os\nos.pidfd_open(os.getppid())\nprint('ESCAPED')",
    "a file of the host": _call("pidfd_getfd", "3, 1, 0"),
    "tracing the host": _call("ptrace", "16, os.getppid(), 0, 0"),
    "being traced": _call("ptrace", "0, 0, 0, 0"),
    "reading the host's memory": _call("process_vm_readv", "os.getppid(), 0, 0, 0, 0, 0"),
    "writing the host's memory": _call("process_vm_writev", "os.getppid(), 0, 0, 0, 0, 0"),
    "comparing with the host": _call("kcmp", "os.getpid(), os.getppid(), 0, 0, 0"),
    "the host's environment": "import os\nopen(f'/proc/{os.getppid()}/environ')\nprint('ESCAPED')",
    "the host's memory by proc": "import os\nopen(f'/proc/{os.getppid()}/mem', 'rb')\nprint('ESCAPED')",
    "the host's files by proc": "import os\nos.listdir(f'/proc/{os.getppid()}/fd')\nprint('ESCAPED')",
    "its own memory by proc": "open('/proc/self/mem', 'r+b', 0)\nprint('ESCAPED')",
    "its own environment by proc": "print('ESCAPED', open('/proc/self/environ').read())",
    "the root by proc": "print('ESCAPED', open('/proc/self/root/etc/passwd').read())",
    "the kernel's settings": "open('/proc/sys/kernel/hostname')\nprint('ESCAPED')",
    "the host's limits": "import os, resource\nresource.prlimit(os.getppid(), resource.RLIMIT_CPU, (0, 0))\nprint('ESCAPED')",
    "raising limits": "import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))\nprint('ESCAPED')",
    "the host's priority": "import os\nos.setpriority(os.PRIO_PROCESS, os.getppid(), 19)\nprint('ESCAPED')",
    "priority on the disk": _call("ioprio_set", "1, 0, 0"),
    "the host's processors": "import os\nos.sched_setaffinity(os.getppid(), {0})\nprint('ESCAPED')",
    "a new session": "import os\nos.setsid()\nprint('ESCAPED')",
    "a new group": "import os\nos.setpgid(0, 0)\nprint('ESCAPED')",
}  # fmt: skip

KERNEL = {
    "back to root": "import os\nos.setresuid(0, 0, 0)\nprint('ESCAPED')",
    "another user": "import os\nos.setuid(12345)\nprint('ESCAPED')",
    "another group": "import os\nos.setgroups([0])\nprint('ESCAPED')",
    "capabilities": _call("capset", "(ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)(-1, -1, -1, -1, -1, -1)"),
    "a user namespace": _call("unshare", "0x10000000"),
    "a mount namespace": _call("unshare", "0x20000"),
    "another's namespace": _call("setns", "0, 0"),
    "mounting": "import ctypes\nif ctypes.CDLL(None).mount(b'x', b'/', b'tmpfs', 0, 0) == 0: print('ESCAPED')",
    "mounting by the new calls": _call("fsopen", "b'tmpfs', 0"),
    "a tree of mounts": _call("open_tree", "-100, b'/', 1"),
    "unmounting": _call("umount2", "b'/proc', 2"),
    "a new root": _call("pivot_root", "b'/', b'/'"),
    "chroot": _call("chroot", "b'/'"),
    "io_uring": _call("io_uring_setup", "1, (ctypes.c_char * 200)()"),
    "old asynchronous input": _call("io_setup", "1, (ctypes.c_uint64 * 1)()"),
    "bpf": _call("bpf", "0, (ctypes.c_char * 200)(), 72"),
    "performance counters": _call("perf_event_open", "(ctypes.c_char * 200)(), 0, -1, -1, 0"),
    "user faults": _call("userfaultfd", "1"),
    "keys": _call("add_key", "b'user', b'x', b'y', 1, -3"),
    "the keyring": _call("keyctl", "0, -3, 1"),
    "secret memory": _call("memfd_secret", "0"),
    "memory files by number": _call("memfd_create", "b'x', 0"),
    "System V shared memory": _call("shmget", "0, 4096, 0o1777"),
    "System V messages": _call("msgget", "0, 0o1777"),
    "System V semaphores": _call("semget", "0, 1, 0o1777"),
    "POSIX messages": _call("mq_open", "b'x', 0o102, 0o666, 0"),
    "watching files": _call("inotify_init1", "0"),
    "watching everything": _call("fanotify_init", "0, 0"),
    "signals as files": _call("signalfd4", "-1, (ctypes.c_uint64 * 1)(), 8, 0"),
    "timers as files": _call("timerfd_create", "0, 0"),
    "events as files": _call("eventfd2", "0, 0"),
    "epoll": _call("epoll_create1", "0"),
    "setting the clock": "import time\ntime.clock_settime(time.CLOCK_REALTIME, 0)\nprint('ESCAPED')",
    "setting the clock, the old way": _call("settimeofday", "(ctypes.c_int64 * 2)(), 0"),
    "tuning the clock": _call("adjtimex", "(ctypes.c_char * 300)()"),
    "the machine's name": "import socket\nsocket.sethostname('x')\nprint('ESCAPED')",
    "modules of the kernel": _call("init_module", "0, 0, b''"),
    "removing modules": _call("delete_module", "b'x', 0"),
    "restarting": _call("reboot", "0, 0, 0, 0"),
    "swapping": _call("swapon", "b'VICTIM', 0"),
    "accounting": _call("acct", "b'VICTIM'"),
    "quotas": _call("quotactl", "0, 0, 0, 0"),
    "another personality": _call("personality", "0x0040000"),
    "another filter": _call("seccomp", "1, 0, 0"),
    "other rules": _call("landlock_create_ruleset", "0, 0, 1"),
    "no filter any more": "import ctypes\nif ctypes.CDLL(None).prctl(22, 0, 0, 0, 0) == 0: print('ESCAPED')",
    "new privileges": "import ctypes\nif ctypes.CDLL(None).prctl(38, 0, 0, 0, 0) == 0: print('ESCAPED')",
    "outliving the host": "import ctypes\nif ctypes.CDLL(None).prctl(1, 0, 0, 0, 0) == 0: print('ESCAPED')",
    "a terminal's input": "import fcntl\nfcntl.ioctl(0, 0x5412, b'x')\nprint('ESCAPED')",
    "bigger pipes": "import fcntl, os\nfcntl.fcntl(os.pipe()[0], 1031, 2**20)\nprint('ESCAPED')",
}  # fmt: skip
if _IS_X86:
    _MACHINE_CODE = (
        "import ctypes, mmap\nm = mmap.mmap(-1, 4096, prot=7)\nm.write(bytes.fromhex('{code}'))\n"
        "f = ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(m)))\n"
        "if f() > 0: print('ESCAPED')"
    )
    KERNEL |= {
        # mov eax, 20 (getpid of 32 bits); int 0x80; ret
        "the calls of 32 bits": _MACHINE_CODE.format(code="b814000000cd80c3"),
        # mov eax, 0x40000027 (getpid of x32); syscall; ret
        "the calls of x32": "import ctypes\nif ctypes.CDLL(None).syscall(0x40000027) > 0: print('ESCAPED')",
        "creat": "import ctypes\nif ctypes.CDLL(None).syscall(85, b'SHARED/x', 0o666) >= 0: print('ESCAPED')",
        "open by number": "import ctypes\nif ctypes.CDLL(None).syscall(2, b'VICTIM', 3 | 0o1000) >= 0: print('ESCAPED')",
        "fork by number": "import ctypes\nif ctypes.CDLL(None).syscall(57) >= 0: print('ESCAPED')",
        "unlink by number": "import ctypes\nif ctypes.CDLL(None).syscall(87, b'VICTIM') == 0: print('ESCAPED')",
        "rename by number": "import ctypes\nif ctypes.CDLL(None).syscall(82, b'VICTIM', b'SHARED/x') == 0: print('ESCAPED')",
    }  # fmt: skip

NETWORK = {
    "TCP": "import socket\nsocket.create_connection(('127.0.0.1', PORT), 1)\nprint('ESCAPED')",
    "TCP by number": _call("socket", "2, 1, 0"),
    "listening": "import socket\nsocket.create_server(('127.0.0.1', 0))\nprint('ESCAPED')",
    "datagrams": "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nprint('ESCAPED')",
    "IPv6": "import socket\nsocket.socket(socket.AF_INET6)\nprint('ESCAPED')",
    "raw packets": "import socket\nsocket.socket(socket.AF_PACKET, socket.SOCK_RAW)\nprint('ESCAPED')",
    "a local socket": "import socket\nsocket.socket(socket.AF_UNIX).connect('SOCKET')\nprint('ESCAPED')",
    "an abstract socket": "import socket\nsocket.socket(socket.AF_UNIX).connect('\\0ABSTRACT')\nprint('ESCAPED')",
    "pairs of sockets": "import socket\nsocket.socketpair()\nprint('ESCAPED')",
    "netlink": "import socket\nsocket.socket(socket.AF_NETLINK)\nprint('ESCAPED')",
    "the kernel's ciphers": "import socket\nsocket.socket(38, socket.SOCK_SEQPACKET)\nprint('ESCAPED')",
    "virtual machines": "import socket\nsocket.socket(40, socket.SOCK_STREAM)\nprint('ESCAPED')",
    "names": "import socket\nsocket.getaddrinfo('localhost', 80)\nsocket.socket()\nprint('ESCAPED')",
    "urllib": "import urllib.request as r\nr.urlopen('http://127.0.0.1:PORT')\nprint('ESCAPED')",
    "asyncio": "import asyncio\nasyncio.run(asyncio.sleep(0))\nprint('ESCAPED')",
}  # fmt: skip

INSIDE = {
    "other packages": "import numpy\nprint('ESCAPED')",
    "our own package": "import agentgym_rl.envs.registry\nprint('ESCAPED')",
    "files of the host": "import os\nfor fd in range(3, 64):\n  try: os.read(fd, 10); print('ESCAPED', fd)\n  except OSError: pass",
    "an answer forged in the host's pipe": "import os\nfor fd in range(3, 64):\n  try: os.write(fd, b'{\"num_bytes\": 7}\\nESCAPED'); print('ESCAPED', fd)\n  except OSError: pass",
    "the host's objects": "import gc\nfor one in gc.get_objects():\n  if type(one).__name__ == '_Host': print('ESCAPED')\nimport sys\nhost = sys.modules['agentgym_rl.sandbox.host']\nhost._write(4, b'x'); print('ESCAPED')",
    "the environment": "import os\nassert not os.environ, 'ESCAPED'",
}  # fmt: skip

ATTACKS = {
    f"{kind}: {name}": code
    for kind, group in (
        ("files", FILES),
        ("processes", PROCESSES),
        ("kernel", KERNEL),
        ("network", NETWORK),
        ("inside", INSIDE),
    )
    for name, code in group.items()
}

FLOODS = {
    "an endless loop": ("while True: pass", "computing time"),
    "a loop that catches": (
        "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\n"
        "while True:\n  try:\n    while True: pass\n  except BaseException: pass",
        "computing time",
    ),
    "sleeping": ("import time\ntime.sleep(1000)", "longer than"),
    "sleeping in parts": ("import time\nwhile True: time.sleep(0.01)", "longer than"),
    "waiting for input": ("import sys\nprint(sys.stdin.read())", ""),
    "memory": ("x = 'a' * 10**10", ""),
    "memory by little": ("x = []\nwhile True: x.append(bytearray(10**6))", ""),
    "memory shared": ("import mmap\nm = [mmap.mmap(-1, 2**24) for _ in range(10**4)]", ""),
    "memory mapped from a file": (
        "import mmap, os\nfd = os.open('LIBRARY', os.O_RDONLY)\n"
        "m = [mmap.mmap(fd, 0, prot=3, flags=mmap.MAP_PRIVATE) for _ in range(10**6)]",
        "",
    ),
    "a huge integer": ("print(len(str(9 ** 9 ** 9)))", "computing time"),
    "a huge output": ("while True: print('x' * 10**6)", "printed too much"),
    "a huge output of errors": (
        "import sys\nwhile True: sys.stderr.write('x' * 10**6)",
        "printed too much",
    ),
    "deep recursion": ("def f(): return f()\nf()", ""),
    "recursion without a limit": (
        "import sys\nsys.setrecursionlimit(10**9)\ndef f(): return [f()]\nf()",
        "",
    ),
    "a broken pointer": ("import ctypes\nctypes.string_at(0)", "crashed"),
    "open files": ("x = []\nwhile True: x.append(open('LIBRARY'))", ""),
    "pipes": ("import os\nx = []\nwhile True: x.append(os.pipe())", ""),
    "a full pipe": ("import os\nr, w = os.pipe()\nwhile True: os.write(w, bytes(10**4))", "longer"),
    "a closed output": (
        "import os, time\nos.close(1); os.close(2)\ntime.sleep(1000)",
        "longer than",
    ),
    "deep parentheses": ("(" * 10_000, ""),
    "a slow pattern": ("import re\nre.match('(a*)*b', 'a' * 99)", "computing time"),
}
"""The code, and what its end is called; "" where Python itself or an error ends it."""
