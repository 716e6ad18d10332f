import sys

try:
    from seedbench.cli import main

    main()
except KeyboardInterrupt:  # before main could say more
    sys.exit(130)
