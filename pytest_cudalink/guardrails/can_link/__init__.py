"""Whether one CUDA release takes the code of another, and what each rule expects of the pair: ``cudalink can-link``."""
