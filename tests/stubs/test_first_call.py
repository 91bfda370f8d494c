"""The first call: from many threads, before main, under the loader's lock, with the stub in the global scope."""

from pathlib import Path

import pytest

from .conftest import NOWHERE, compile_c, linked, loaded

THREADS = 200

#: Opens slowly, so that every thread is in the first call before the first one is through.
SLOW_LIBRARY = """
#include <unistd.h>
static int calls;
__attribute__((constructor)) static void start(void) { usleep(50000); }
int cudaRuntimeGetVersion(int *version) { *version = 13000; return 0; }
int cudaGraphInstantiateWithParams(void) { return 0; }
int cudaGetDevice(int *device) { *device = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED); return 0; }
"""

MANY_THREADS = """
#include <pthread.h>
#include <stdio.h>
extern int cudaGetDevice(int *), cudaGetDeviceCount(int *), cudaRuntimeGetVersion(int *);
static pthread_barrier_t barrier;
static int results[THREADS][4];
static void *first_call(void *argument)
{
  int *mine = argument, value = -1;
  pthread_barrier_wait(&barrier);
  mine[0] = cudaGetDevice(&value);
  mine[1] = value;
  mine[2] = cudaGetDeviceCount(&value);
  mine[3] = value;
  return NULL;
}
int main(void)
{
  pthread_t threads[THREADS];
  int good = 0, last = 0;
  pthread_barrier_init(&barrier, NULL, THREADS);
  for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, first_call, results[i]);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < THREADS; i++) {
    good += results[i][0] == EXPECTED && results[i][2] == MISSING && results[i][3] == 0;
    if (results[i][1] > last) last = results[i][1];
  }
  printf("%d good, last %d\\n", good, last);
  return 0;
}
"""


def many_threads(path: Path, stub: Path, *, present: bool = True, threads: int = THREADS) -> Path:
    """A program that makes its first calls from many threads, with a library or without."""
    text = MANY_THREADS.replace("THREADS", str(threads))
    text = text.replace("EXPECTED", "0" if present else "303").replace("MISSING", "302" if present else "303")
    return compile_c(path, text, *linked(stub))


@pytest.mark.parametrize("present", [True, False])
def test_many_threads(present: bool, stubs, run, tmp_path) -> None:
    """Two hundred threads in the first call all get the right answer; the library is looked for once."""
    program = many_threads(tmp_path / "threads", stubs["cudart"], present=present)
    real = compile_c(tmp_path / "slow.so", SLOW_LIBRARY)
    done = run(program, CUDALINK_STUBS_CUDART=real if present else NOWHERE, CUDALINK_STUBS_VERBOSE="1")
    assert done.stdout == f"{THREADS} good, last {THREADS if present else 0}\n"
    assert len(done.stderr.splitlines()) == 1, done.stderr


def test_threads_agree_why(stubs, run, tmp_path) -> None:
    """A thread that searches while another one opens the file does not take that file for one that was there before."""
    package = tmp_path / "site"
    compile_c(package / "nvidia/cu13/lib/libcudart.so.13", SLOW_LIBRARY)
    program = many_threads(package / "pkg" / "threads", stubs["cudart"], threads=50)
    for _ in range(5):
        done = run(program, CUDALINK_STUBS_VERBOSE="1")
        assert done.stdout == "50 good, last 50\n"
        assert done.stderr.count("wheel beside the caller") == 1, done.stderr


CONSTRUCTOR = """
#include <stdio.h>
extern int cudaGetDeviceCount(int *);
__attribute__((constructor)) static void before_main(void)
{
  int n = -1, result = cudaGetDeviceCount(&n);
  printf("constructor %d %d\\n", result, n);
  fflush(stdout);
}
"""


@pytest.mark.parametrize("present", [True, False])
def test_before_main(present: bool, stubs, run, tmp_path) -> None:
    """A constructor may call the stub, also one of a library that the loader starts before the program."""
    real = compile_c(tmp_path / "real.so", "int cudaGetDeviceCount(int *n) { *n = 4; return 0; }")
    early = compile_c(tmp_path / "libearly.so", CONSTRUCTOR, *linked(stubs["cudart"]))
    program = compile_c(tmp_path / "program", "int main(void) { return 0; }", "-Wl,--no-as-needed", *linked(early))
    done = run(program, CUDALINK_STUBS_CUDART=real if present else NOWHERE)
    assert done.returncode == 0
    assert done.stdout == ("constructor 0 4\n" if present else "constructor 303 0\n")


@pytest.mark.parametrize("constructor_first", [True, False])
def test_constructor_under_the_loaders_lock(constructor_first: bool, stubs, run, tmp_path) -> None:
    """No deadlock: one thread is in its first call, another one loads a library whose constructor calls the stub."""
    real = compile_c(tmp_path / "slow.so", SLOW_LIBRARY)
    late = compile_c(
        tmp_path / "liblate.so",
        """
        #include <unistd.h>
        extern int cudaGetDevice(int *);
        int answer = -1;
        __attribute__((constructor)) static void start(void) { int n; usleep(60000); answer = cudaGetDevice(&n); }
        """,
        *linked(stubs["cudart"]),
    )
    program = compile_c(
        tmp_path / "program",
        f"""
        #include <dlfcn.h>
        #include <pthread.h>
        #include <stdio.h>
        #include <unistd.h>
        extern int cudaGetDevice(int *);
        static int first = -1;
        static void *call(void *unused) {{ int n; usleep(WAIT); first = cudaGetDevice(&n); return unused; }}
        int main(void)
        {{
          pthread_t thread;
          pthread_create(&thread, NULL, call, NULL);
          usleep(LEAD);
          /* the constructor sleeps under the loader's lock, which the other thread's search waits for */
          void *late = dlopen("{late}", RTLD_NOW);
          pthread_join(thread, NULL);
          printf("%d %d\\n", first, *(int *)dlsym(late, "answer"));
        }}
        """.replace("LEAD", str(5000 * (not constructor_first))).replace("WAIT", str(20000 * constructor_first)),
        *linked(stubs["cudart"]),
    )
    assert run(program, CUDALINK_STUBS_CUDART=real).stdout == "0 0\n"


def test_stub_in_the_global_scope(stubs, run, tmp_path) -> None:
    """A preloaded stub finds the real library behind it, not itself; a real library's own calls may come back to it."""
    real = compile_c(
        tmp_path / "real.so",
        """
        extern int cudaGetDevice(int *);
        int cudaGetDevice(int *device) { *device = 7; return 0; }
        int cudaGetDeviceCount(int *n) { int device; cudaGetDevice(&device); *n = device + 1; return 0; }
        """,
    )
    code = """
import ctypes
n = ctypes.c_int()
print(ctypes.CDLL(None).cudaGetDeviceCount(ctypes.byref(n)), n.value)
"""
    done = run(code, LD_PRELOAD=stubs["cudart"], CUDALINK_STUBS_CUDART=real)
    assert done.stdout == "0 8\n", done.stderr


def test_stub_named_as_the_library(stubs, run, tmp_path) -> None:
    """Another stub, or the stub itself, is refused as the real library; circles do not come to be."""
    code = loaded(stubs["cudart"], "cudaGetErrorString")
    code += "print(stub.cudaGetDeviceCount(None), stub.cudaGetErrorString(303).decode())"
    done = run(code, CUDALINK_STUBS_CUDART=stubs["cudart"])
    assert done.stdout.startswith("303 libstub_cudart.so: no libcudart was found; looked in CUDALINK_STUBS_CUDART=")
    assert "(is a stub itself, or linked with one)" in done.stdout


def test_errno_is_kept(stubs, run, tmp_path) -> None:
    """The search does not change errno for the caller."""
    program = compile_c(
        tmp_path / "program",
        """
        #include <errno.h>
        #include <stdio.h>
        extern int cudaGetDevice(int *);
        int main(void) { int n; errno = 77; cudaGetDevice(&n); printf("%d\\n", errno); }
        """,
        *linked(stubs["cudart"]),
    )
    assert run(program, CUDALINK_STUBS_CUDART=NOWHERE).stdout == "77\n"


@pytest.mark.parametrize("flags", [("-Wl,-z,lazy",), ("-Wl,-z,now", "-Wl,-z,relro"), ("-fno-plt",)])
def test_caller_is_bound_directly(flags: tuple[str, ...], stubs, run, tmp_path) -> None:
    """After the first call a lazily bound caller goes to the library itself: the trampoline may be gone.

    Where the caller's slots are read-only the trampoline stays, and still works. An address that the program took does
    not change.
    """
    real = compile_c(tmp_path / "real.so", "int cudaGetDevice(int *d) { return ++*d > 100; }")
    program = compile_c(
        tmp_path / "program",
        """
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <stdint.h>
        #include <stdio.h>
        #include <sys/mman.h>
        extern int cudaGetDevice(int *);
        extern const char *stub_cudart_describe(void);
        static int (*volatile kept)(int *) = cudaGetDevice;
        int main(void)
        {
          int device = 0;
          cudaGetDevice(&device);
          cudaGetDevice(&device);
          printf("%d %d ", kept == dlsym(RTLD_DEFAULT, "cudaGetDevice"), kept(&device) + device);
          fflush(stdout);
          uintptr_t page = (uintptr_t)dlsym(RTLD_DEFAULT, "cudaGetDevice") & ~(uintptr_t)4095;
          if (LAZY && mprotect((void *)page, 4096, PROT_NONE)) return 1;
          int last = cudaGetDevice(&device) + device;
          /* the page may also hold what the loader calls when the program ends */
          if (LAZY && mprotect((void *)page, 4096, PROT_READ | PROT_EXEC)) return 1;
          printf("%d\\n", last);
        }
        """.replace("LAZY", str(int("lazy" in flags[0]))),
        *flags,
        "-fPIE",
        "-pie",
        *linked(stubs["cudart"]),
    )
    done = run(program, CUDALINK_STUBS_CUDART=real)
    assert (done.returncode, done.stdout) == (0, "1 3 4\n"), done.stderr
