"""`python -m simfl`: the command line, for when its script is not on the path."""

from simfl.cli.app import main

if __name__ == "__main__":
    main()
