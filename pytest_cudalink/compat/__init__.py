"""What is known of CUDA releases and architectures, as data that any project can import.

`exports` says what each library exports in which release, `known_bad` which combinations of versions fail, `releases`
and `architectures` what each release reads, writes and compiles for. `atlas` has what was measured of links across
releases, and `link_rules` what NVIDIA says of them. ``matrices/compat.json`` has the rest for other languages.

`data/` holds the facts. ``tools/make_names.py`` writes `names` from them, and ``native_build/driver.py`` the
headers of the C.
"""
