"""The learner on several processes: who gets which samples, how they travel, the processes."""
