"""What the worker of a session computes; it knows nothing of the session's state.

measuring       a recipe applied, timed and profiled
queries         what a view can request: sensitivity, allocation, exports and others
memory_queries  those about memory: does it fit, how buffers pack, what a pool spares
worker          a thread that runs jobs while there are any, and the load of others meanwhile
"""

from . import memory_queries as memory_queries  # registers them
from .queries import QUERIES, Query, QueryContext, query_named, subject_of

__all__ = ["QUERIES", "Query", "QueryContext", "query_named", "subject_of"]
