import sys

from engine.bench.gpu.run import main

if __name__ == "__main__":
    sys.exit(main())
