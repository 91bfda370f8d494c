"""What is known of CUDA releases and architectures, and the words and limits that several parts share.

`data/` holds the facts. `make_names` writes `names` from them, and ``emulator/build.py`` the headers of the C.
"""
