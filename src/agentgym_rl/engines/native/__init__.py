"""The native engine on a CPU, with results that do not depend on the batch."""
