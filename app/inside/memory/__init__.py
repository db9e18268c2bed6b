"""Where the KV pool's bytes go over time, and what the device holds."""
