"""What pytest cannot do with a unittest.TestCase."""

import unittest

import pytest


class TestBoth(unittest.TestCase):
    @pytest.mark.cudalink(backend="each")
    def test_links(self): ...
