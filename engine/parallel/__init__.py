"""One model on several devices: its parts, and the processes that compute them together."""
