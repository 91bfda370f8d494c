"""`Program`: compiles CUDA C++ with NVRTC, through cuda-bindings."""

from collections.abc import Sequence
from itertools import starmap
from typing import Any, Literal, Protocol, Self

from .. import probes
from ..base.install_command import install_command
from .errors import CompileError
from .objectcode import ObjectCode
from .options import ProgramOptions, names_of

_GETTERS = {"ptx": "PTX", "cubin": "CUBIN", "ltoir": "LTOIR"}


class _Writer(Protocol):
    def write(self, text: str, /) -> object: ...


def _nvrtc() -> Any:
    try:
        with probes.importing:
            from cuda.bindings import nvrtc
    except ImportError as error:
        raise _not_available(error) from error
    return nvrtc


def _not_available(error: Exception) -> RuntimeError:
    reason = str(error).strip().partition("\n")[0]
    missing = "cuda.bindings cannot be imported" if isinstance(error, ImportError) else "NVRTC was not found"
    command = install_command("pytest-cudalink[cu13]")
    return RuntimeError(f"compiling needs cuda.bindings and NVRTC; {missing} ({reason}); {command} (or [cu12])")


class Program:
    """A CUDA C++ program.

    `code`: source text.
    `code_type`: ``"c++"``.
    Raises TypeError, ValueError if an argument has the wrong type or value; names the argument.
    Raises RuntimeError if cuda-bindings or NVRTC is missing.
    """

    def __init__(self, code: str, code_type: str = "c++", options: ProgramOptions | None = None) -> None:
        if not isinstance(code_type, str):
            raise TypeError(f"Program: code_type must be the str 'c++', got {type(code_type).__name__}")
        if code_type.lower() != "c++":
            msg = f"Program: code_type {code_type!r} is not supported, only 'c++'; PTX goes to ObjectCode.from_ptx"
            raise ValueError(msg)
        if not isinstance(code, str):
            raise TypeError(f"Program: code must be the source text as str, got {type(code).__name__}")
        self._options = ProgramOptions() if options is None else options
        if not isinstance(self._options, ProgramOptions):
            raise TypeError(f"Program: options must be a ProgramOptions, got {type(options).__name__}")
        self._nvrtc = _nvrtc()
        #: NVRTC's answer to nvrtcCreateProgram: empty if the program is closed.
        self._created: list[tuple[Any, ...]] = []
        self._create(code)

    def _create(self, code: str) -> None:
        source, name = code.encode(), self._options.name.encode("utf-8", "replace")
        arguments: tuple[Any, ...] = (source, name, 0, [], [])
        try:
            # one call in C: an exception that comes as a call returns loses what it returned
            self._created.extend(starmap(self._nvrtc.nvrtcCreateProgram, (arguments,)))
            self._handle = self._check("nvrtcCreateProgram", self._created[0])
        except RuntimeError as error:  # cuda-bindings opens NVRTC at the first call
            if isinstance(error, CompileError):
                self._created.clear()
                raise
            raise _not_available(error) from error

    def compile(
        self,
        target_type: Literal["ptx", "cubin", "ltoir"],
        name_expressions: str | Sequence[str] = (),
        logs: _Writer | None = None,
    ) -> ObjectCode:
        """Return the compiled object code.

        `target_type`: ``"ptx"``, ``"cubin"`` or ``"ltoir"``.
        `name_expressions`: C++ expressions whose lowered names go into `ObjectCode.symbol_mapping`.
        `logs`: receives the compiler's log.
        Raises CompileError if NVRTC refuses the program or an option.
        Raises ValueError if the target is unknown; if it is a cubin and no real architecture is known; if it is not
        LTO-IR although ``ProgramOptions(link_time_optimization=True)``.
        Raises TypeError if `name_expressions` is neither a name nor a sequence of names.
        Raises RuntimeError if the program is closed.
        """
        if target_type not in _GETTERS:
            raise ValueError(f"compile({target_type!r}): unknown target; known: {', '.join(map(repr, _GETTERS))}")
        if self._options.link_time_optimization and target_type != "ltoir":
            why = "with ProgramOptions(link_time_optimization=True) NVRTC makes LTO-IR only"
            raise ValueError(f"compile({target_type!r}): {why}; leave the option out, or compile('ltoir')")
        expressions = names_of("Program.compile", "name_expressions", name_expressions)
        if self.is_closed:
            raise RuntimeError("compile() on a closed Program")
        arch = self._options.arch or probes.device_arch()
        if target_type == "cubin" and (arch is None or not arch.startswith("sm_")):
            given = arch or "none given, and no device to ask"
            msg = f"compile('cubin') needs a real architecture such as ProgramOptions(arch='sm_90'), found: {given}"
            raise ValueError(msg)
        for expression in expressions:
            self._call("nvrtcAddNameExpression", expression.encode())
        options = [option.encode() for option in self._options.for_nvrtc(arch, lto=target_type == "ltoir")]
        compiled = self._nvrtc.nvrtcCompileProgram(self._handle, len(options), options)
        log = self._fetched("nvrtcGetProgramLog").rstrip(b"\0").decode("utf-8", "replace")
        self._check("nvrtcCompileProgram", compiled, log)
        if logs is not None and log:
            logs.write(log)
        code = self._fetched(f"nvrtcGet{_GETTERS[target_type]}")
        names = {name: self._call("nvrtcGetLoweredName", name.encode()).decode() for name in expressions}
        return ObjectCode._make(code, target_type, self._options.name, names)

    def _call(self, name: str, *arguments: object) -> Any:
        return self._check(name, getattr(self._nvrtc, name)(self._handle, *arguments))

    def _fetched(self, getter: str) -> bytes:
        """Return the bytes that a function of NVRTC writes, whose size another one returns."""
        content = bytes(self._call(f"{getter}Size"))  # cuda-bindings writes into the bytes object
        self._call(getter, content)
        return content

    def _check(self, call: str, answer: tuple[Any, ...], log: str = "") -> Any:
        result, *values = answer
        if result != self._nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise CompileError(call, result.name, log, self._options.name)
        return values[0] if values else None

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return not self._created

    def close(self) -> None:
        """Release the compiler's memory; compiled object codes stay valid."""
        try:
            self._close()
        except BaseException:
            self._close()  # what an exception left of it
            raise

    def _close(self) -> None:
        if self._created:
            destroy = self._nvrtc.nvrtcDestroyProgram
            # no signal's exception comes between these lines
            (_, handle), self._created[:] = self._created[0], ()
            destroy(handle)

    def __del__(self) -> None:
        if self.__dict__.get("_created"):
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
