"""Ways for weights from a learner to engines in other processes."""
