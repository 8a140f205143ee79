"""Search engines over a corpus of passages: in this process, built once on disk, or over HTTP."""
