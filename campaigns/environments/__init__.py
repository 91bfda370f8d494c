"""Random environments of released packages, judged by ``cudalink`` and by what really happens in them.

`generator` draws an environment from a seed and makes it, `operations` runs in it and does what its users would do, and
`__main__` compares.
"""
