"""What all our HTTP services share: where they listen, and who may call."""
