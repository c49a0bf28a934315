"""The commands: thin scripts over `commands`, which derive tables (`tables`) in this process or on Spark (`engines`).

Options, logs and Spark's session are in `cli`; what is done to bytes and rows is in `udfs`.
"""

from importlib.util import find_spec
from pathlib import Path

_BESIDE = ("schemas", "udfs", "conf")


def _require_packages() -> None:
    """Checks that the packages with common names are those beside this one, in a folder or in a zip.

    Raises:
        ImportError: another package of the name is found before it, or none.
    """
    own = Path(__file__).parents[1]
    for name in _BESIDE:
        spec = find_spec(name)
        places = [Path(place) for place in spec.submodule_search_locations or ()] if spec else []
        if places != [own / name]:
            found = f"{places[0]} hides it" if places else "it is not there"
            raise ImportError(
                f"The package {name} should be {own / name}, but {found}. Install msmq-replay into a virtual "
                "environment of its own, and leave other packages of this name out of PYTHONPATH and --py-files.",
                name=name,
            )


_require_packages()
