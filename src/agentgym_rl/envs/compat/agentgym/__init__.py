"""AgentGym's wire protocol, on both sides.

Server: its stock clients can play here. Routes, bodies and failures are in dialect.py, the
scenarios' own shapes in profiles.py, integer ids in numbered_episodes.py, and the meaning of a
`data_idx` in task_index.py. Client: episodes on AgentGym's own servers are in source.py, its
scenarios in scenarios.py.
"""
