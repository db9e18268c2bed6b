"""What is known of a whole run, kept in a file of its own: a long run opens without being read."""

from engine.trace.index.filed_log import FiledLog
from engine.trace.index.folder import IndexFolder, Readers, forget_index
