from seedbench.cli import main

main()
