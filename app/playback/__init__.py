"""The one time cursor: records as they arrive, replay, following and scrubbing."""
