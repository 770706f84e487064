"""Tries the namespace out from inside, as the command: `python -I -S check.py NAME FOLDER...`.

Makes a folder NAME in each FOLDER, with all that training does to checkpoints. The parent then looks whether any of it
can be seen outside. Standard library only.
"""

import os
import sys


def main(name: str, folders: list[str]) -> None:
    """Ends with a status other than 0, and the reason on standard error, when something does not work."""
    for folder in folders:
        try:
            _try_out(os.path.join(folder, name))
        except OSError as error:
            sys.exit(f"writing into {folder}: {error.strerror}")


def _try_out(path: str) -> None:
    os.mkdir(path)
    part, whole = os.path.join(path, "model.part"), os.path.join(path, "model.pt")
    for content in ("first", "second"):
        with open(part, "w", encoding="ascii") as file:
            file.write(content)
        os.replace(part, whole)
        with open(whole, encoding="ascii") as file:
            assert file.read() == content
    os.rename(path, path + "-moved")
    os.rename(path + "-moved", path)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
