"""Packages to start from: `agentgym init` copies a template of this folder under another name.

Templates are ordinary packages, `my_env` with the class `MyEnv` and so on; they are formatted,
checked and tested as all other code is.
"""
