"""Call the extension, as its package does."""

import ctypes

ctypes.CDLL("./mylib/_native.so").report()
