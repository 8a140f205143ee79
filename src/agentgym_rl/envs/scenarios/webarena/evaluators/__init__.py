"""WebArena's original evaluators, written anew: answers, addresses and pages, and the judge."""
