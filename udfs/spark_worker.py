"""Reduces the overhead of each task in a Python worker of Spark."""

import gc
import sys
from zipimport import zipimporter


def reduce_overhead() -> None:
    """Drops the importers of zip files from the path cache and exempts loaded modules from garbage collection.

    Before each task, Spark invalidates the caches of all importers. Before Python 3.13, the importer of a zip file then
    reads the whole directory of the file (python/cpython#103200); Spark's path holds about twenty such files, its own
    archives and jars, which costs 0.1 s of CPU time per task. An import that needs a dropped importer creates it again,
    without reading. Spark also collects garbage before each task; frozen objects are not visited.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]
    gc.freeze()
