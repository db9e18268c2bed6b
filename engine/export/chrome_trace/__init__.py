"""A run as Chrome trace JSON, which ui.perfetto.dev opens. No torch."""

from engine.export.chrome_trace.trace_file import write_chrome_trace
