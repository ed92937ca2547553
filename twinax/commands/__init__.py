"""What families and installed packages bring to the command line.

A command is a module, or any object, with a docstring, `HELP`, `add_arguments(parser)` and `run(arguments)`, which
gives the exit code; `twinax.console` prints facts and tables. Ours import nothing at their top that is slow to import.
A package adds one with an entry point, in its pyproject.toml, and it is imported when somebody types its name:

    [project.entry-points."twinax.commands"]
    draw = "mypackage.draw"
"""

from __future__ import annotations

from typing import Any

from twinax.errors import TwinaxError
from twinax.registry import Registry

COMMANDS: Registry[Any] = Registry("command", {"data": "twinax.commands.data"})
"""Commands beside those of the command line itself."""
EXAMINERS: Registry[Any] = Registry(
    "examiner", {"xml": "twinax.envs.biped.examination:examine"}, aliases={"mjcf": "xml", "urdf": "xml"}
)
"""What `twinax doctor FILE` calls with the path and the seconds that it may measure, by the end of a file's name."""


def find_command(name: str) -> Any:
    """The command of that name; one sentence if what is there is none."""
    command = COMMANDS.find(name)
    for part in ("add_arguments", "run"):
        if not callable(getattr(command, part, None)):
            code = COMMANDS.resolve(name)
            raise TwinaxError(f"the command '{name}' is {code} of an installed package, which has no function {part}")
    return command
