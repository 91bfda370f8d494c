"""The nvJitLink backend in a link worker: what the library does to its process is a LinkError."""

from collections.abc import Iterator
from contextlib import closing

from ... import probes
from ...emulator.worker import TIMEOUT, WorkerAnswer, WorkerLink, load_client
from ..errors import LinkError
from .nvjitlink import FETCHED, INPUT_TYPES, NvJitLinkErrors

_TARGETS = tuple(FETCHED)


class ContainedState(NvJitLinkErrors):
    """One nvJitLink handle in a worker process.

    `options`: as nvJitLink spells them.
    Raises LinkError if nvJitLink refuses the options, or ends the worker.
    Raises WorkerError if no worker can be started.
    """

    def __init__(self, options: list[str]) -> None:
        super().__init__()
        library = probes.nvjitlink()
        assert library.path is not None  # (nvJitLink was chosen, so it was found)
        self._path, self._release_name, self._options = library.path, str(library.found), options
        self._inputs: list[tuple[int, bytes, bytes]] = []
        with probes.importing:
            load_client()
        self._link = WorkerLink(self._path, options)
        answer = self._link.answer
        self._keep_logs(answer)
        hint = f"options: {' '.join(options)}"
        if answer.end:
            raise self._ended("nvJitLinkCreate", answer, hint=hint)
        if answer.code:
            raise self._failure("nvJitLinkCreate", answer.code, hint=hint)

    @property
    def handle(self) -> int:
        link = self.__dict__.get("_link")  # (an exception may have come before there was one)
        return link.handle if link else 0

    def _add(self, kind: str, code: bytes, name: bytes) -> None:
        answer = self._link.add(INPUT_TYPES[kind], code, name)
        self._keep_logs(answer)
        if answer.end:
            raise self._ended("nvJitLinkAddData", answer)
        if answer.code:
            raise self._failure("nvJitLinkCreate" if answer.opening else "nvJitLinkAddData", answer.code)
        self._inputs.append((INPUT_TYPES[kind], code, name))

    def _complete(self, target: str) -> bytes:
        answer = self._link.complete(_TARGETS.index(target))
        self._keep_logs(answer)
        call = "nvJitLinkComplete"
        if answer.end:
            raise self._ended_by_inputs(call, answer, target)
        if answer.code:
            raise self._failure(call, answer.code)
        if answer.image is None:
            raise self._failure(f"nvJitLinkGetLinked{FETCHED[target]}", answer.fetch_code)
        self._refuse_logged_errors(call)
        return answer.image

    def _release(self) -> None:
        self._link.close()

    def _read_logs(self) -> None:
        """Each answer brought what was new."""

    def _keep_logs(self, answer: WorkerAnswer) -> None:
        for which, text in (("error_log", answer.error_log), ("info_log", answer.info_log)):
            setattr(self, which, getattr(self, which) + text)

    def _ended(self, call: str, answer: WorkerAnswer, hint: str = "", input_name: str | None = None) -> LinkError:
        if answer.hung:
            hint = f"{TIMEOUT} sets another limit, in seconds" + (f"; {hint}" if hint else "")
        summary = f"nvJitLink: {call}: libnvJitLink {self._release_name} {answer.end}, in its link worker"
        log = self.error_log or answer.printed
        return self._link_error(summary, call, hint=hint).with_context(error_log=log, input_name=input_name)

    def _ended_by_inputs(self, call: str, answer: WorkerAnswer, target: str) -> LinkError:
        """Return the error of a link that ended its worker, with the inputs that do so alone, else with all of them."""
        if len(self._inputs) == 1:
            return self._ended(call, answer, input_name=_shown(self._inputs[0][2]))
        deadly = [] if answer.hung else list(self._deadly(target))
        if len(deadly) == 1:
            return self._ended(call, answer, input_name=deadly[0])
        listed = ", ".join(map(repr, deadly or (_shown(name) for *_, name in self._inputs)))
        return self._ended(call, answer, hint=f"inputs that end it alone: {listed}" if deadly else f"inputs: {listed}")

    def _deadly(self, target: str) -> Iterator[str]:
        """Link each input alone; yields the names of those that end the worker."""
        for kind, code, name in self._inputs:
            with closing(WorkerLink(self._path, self._options)) as link:
                if link.handle and (link.add(kind, code, name).end or link.complete(_TARGETS.index(target)).end):
                    yield _shown(name)


def _shown(name: bytes) -> str:
    return name.decode("utf-8", "replace")
