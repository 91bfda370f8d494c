"""Feed the reader of device code with what libFuzzer makes of sound and damaged images, under ASan and UBSan.

    python -m tests.artifacts.fuzz [--seconds N | --runs N] [--keep FOLDER] [--renew]

Exit code 0: nothing was found; 77: clang or its libFuzzer is missing. Inputs that fail are left in the folder of
``--keep``. ``--renew`` writes the corpus again: of all inputs in that folder, those that reach something new.
Used by the session ``fuzz-reader``.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from native_build import sources as native

HERE = Path(__file__).parent
SAMPLES = HERE.parent / "data" / "artifacts"
CORPUS = HERE / "native" / "corpus.zip"
DICTIONARY = HERE / "native" / "reader.dict"
FLAGS = (
    "-std=gnu11", "-D_GNU_SOURCE", "-g", "-O2", "-fsanitize=fuzzer,address,undefined",
    "-fno-sanitize-recover=undefined",
)  # fmt: skip
#: The exit code of test programs for "skipped".
MISSING = 77
LONGEST = 6400
#: Bytes of the corpus, so that the repository stays small.
MOST = 400 * 1024


def missing() -> str:
    """Why nothing can be fuzzed here; empty if it can."""
    if not shutil.which("clang"):
        return "needs clang (apt-get install clang)"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "empty.c"
        text = "int LLVMFuzzerTestOneInput(const char *data, long size) { return 0 && data && size; }\n"
        source.write_text(text, encoding="utf-8")
        command = ["clang", *FLAGS, str(source), "-o", str(source.with_suffix(""))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"clang has no libFuzzer or no sanitizers: {done.stderr.strip()}" if done.returncode else ""


def build_fuzzer(folder: Path) -> Path:
    program = folder / "fuzz_reader"
    sources = [HERE / "native" / "fuzz_reader.c", *native.READER_SOURCES]
    command = ["clang", *FLAGS, f"-I{native.READER}", *map(str, sources), "-o", str(program)]
    subprocess.run(command, check=True)
    return program


def unpack(folder: Path) -> Path:
    """The corpus and the samples as files, in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    if CORPUS.exists():
        with zipfile.ZipFile(CORPUS) as corpus:
            corpus.extractall(folder)
    for sample in (path for path in SAMPLES.rglob("*") if path.is_file()):
        shutil.copy(sample, folder / "-".join(sample.relative_to(SAMPLES).parts))
    return folder


def renew(program: Path, folder: Path, work: Path) -> None:
    """Write the corpus: inputs that reach something which neither the samples nor smaller inputs reach."""
    merged = work / "merged"
    merged.mkdir()
    known = unpack(work / "known")
    (samples := work / "samples").mkdir()
    for sample in known.glob("*.*"):
        sample.rename(samples / sample.name)
    command = [str(program), "-merge=1", str(merged), str(samples), str(known), str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    there = {path.read_bytes() for path in samples.iterdir()}
    fresh = (path for path in merged.iterdir() if path.read_bytes() not in there)
    inputs = sorted(fresh, key=lambda path: path.stat().st_size)
    room = MOST
    with zipfile.ZipFile(CORPUS, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as corpus:
        for path in inputs:
            if (room := room - path.stat().st_size) >= 0:
                corpus.writestr(zipfile.ZipInfo(path.name), path.read_bytes(), zipfile.ZIP_DEFLATED)
        print(f"{len(corpus.namelist())} of {len(inputs)} inputs in {CORPUS}")


def main() -> int:
    """Fuzz for a time or a number of inputs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--runs", type=int, help="inputs to try, instead of a time")
    parser.add_argument("--keep", type=Path, help="folder for new inputs and for those that fail")
    parser.add_argument("--renew", action="store_true", help="write the corpus of the repository again")
    options = parser.parse_args()
    if reason := missing():
        print(f"fuzz-reader: skipped: {reason}")
        return MISSING
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        kept = options.keep or work / "kept"
        kept.mkdir(parents=True, exist_ok=True)
        program = build_fuzzer(work)
        bound = f"-runs={options.runs}" if options.runs else f"-max_total_time={options.seconds}"
        command = [str(program), bound, f"-max_len={LONGEST}", f"-dict={DICTIONARY}", "-timeout=5", "-rss_limit_mb=512"]
        command += [f"-artifact_prefix={kept}/", "-print_final_stats=1", str(kept), str(unpack(work / "seeds"))]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        counts = dict(re.findall(r"stat::(\w+):\s+(\d+)", done.stderr))
        rate, tried = counts.get("average_exec_per_sec"), counts.get("number_of_executed_units")
        print(f"{tried} inputs, {rate} in a second, {counts.get('peak_rss_mb')} MB at most")
        if done.returncode:
            print(done.stderr[-8000:])
            return 1
        if options.renew:
            renew(program, kept, work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
