"""`python -m fulltilt` is the same as `fulltilt`."""

from fulltilt.cli import main

if __name__ == "__main__":
    main()
