"""A small library with planted bugs, each beside a twin without it: a fault sweep has to tell them apart."""
