"""AgentGym's wire protocol, on both sides.

Server: its stock clients can play here. Routes, bodies and failures are in dialect.py, the
scenarios' own shapes in profiles.py, integer ids in plays.py, and what a `data_idx` stands for in
task_index.py. Client: episodes on AgentGym's own servers are in source.py, its scenarios in
scenarios.py.
"""
