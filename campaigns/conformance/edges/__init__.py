"""C programs that ask about the edges of each area of cuda.h, and what a device answered.

`ask.h` has what they share. A program prints a line for each question, ``CASE/QUESTION: CODE VALUES``; lines are
compared by their questions, so that one difference is one line.
"""
