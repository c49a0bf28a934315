"""What a Python worker of Spark's is spared between two tasks."""

import gc
import sys
from zipimport import zipimporter


def spare() -> None:
    """Take from the worker what it would look through again at each task: zip files in its path, and loaded modules.

    Spark has all finders look again at where they find modules. Before Python 3.13 each that is of a zip file reads its
    whole directory at that (python/cpython#103200), and Spark has some twenty in the path, of its own archives and of
    jars: 0.1 s of CPU time a task. Here they leave the cache; an import that needs one makes it anew, without reading.

    Then it collects garbage, and looks at every object of every module. These are made permanent.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]
    gc.freeze()
