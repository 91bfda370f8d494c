import cuda.core

print(cuda.core.__version__)
