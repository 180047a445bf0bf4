"""The CPU engine beside others, over the same HTTP requests, in one run."""
