"""Packages that import a module when one of its names is first used."""

import ast
import compileall
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import pytest_cudalink

FOLDER = Path(pytest_cudalink.__file__).parent
PACKAGES = sorted(
    ".".join(("pytest_cudalink", *file.parent.relative_to(FOLDER).parts))
    for file in FOLDER.rglob("__init__.py")
    if "names_of(" in file.read_text(encoding="utf-8")
)


def _seen_by_type_checkers(package: str) -> set[tuple[str, str]]:
    """Return the module and name of each import for type checkers."""
    tree = ast.parse(Path(import_module(package).__file__).read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If) and node.orelse]
    return {("." * node.level + node.module, name.name) for node in block.body for name in node.names}


def _given_at_run_time(package: str) -> set[tuple[str, str]]:
    tree = ast.parse(Path(import_module(package).__file__).read_text(encoding="utf-8"))
    (call,) = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args[1:]]
    modules = ast.literal_eval(call.args[1])
    return {(module, name) for module, names in modules.items() for name in names.split()}


def test_packages_were_found():
    assert {"pytest_cudalink.audit", "pytest_cudalink.linker"} <= {*PACKAGES}


@pytest.mark.parametrize("package", PACKAGES)
def test_names_are_those_that_type_checkers_see(package):
    given = _given_at_run_time(package)
    assert given == _seen_by_type_checkers(package)
    module = import_module(package)
    assert {name for _, name in given} <= {*module.__all__} <= {*dir(module)}
    for name in module.__all__:
        assert getattr(module, name) is not None


#: What the pages and examples of e0a553f4 name: its API page, with all of `__all__` where that lists a whole module.
PUBLIC = """
pytest_cudalink: Raises
pytest_cudalink.artifacts: Artifact Kind ReaderError inspect read_words
pytest_cudalink.audit: Audit AuditError AuditFinding Dependency FileAudit audit
pytest_cudalink.audit.device_code: DeviceCode DeviceImage DriverAnswer DriverOutcome ImageGroup device_code
  images what_happens
pytest_cudalink.audit.environment: Claim EnvironmentAudit EnvironmentFinding Installed audit_environment
pytest_cudalink.audit.installed: Unreadable
pytest_cudalink.audit.needs: Need needs_of
pytest_cudalink.compat.architectures: ARCHITECTURES Architecture dropped_by known_architectures
  parse_architecture
pytest_cudalink.compat.atlas: Atlas AtlasAnswer Grid RealDriver load
pytest_cudalink.compat.documented: Statement statements
pytest_cudalink.compat.exports: distributions first_wheel libraries release_of_wheel releases since sonames
  symbols until wheel_versions
pytest_cudalink.compat.known_bad: KnownBad components entries known_bad
pytest_cudalink.compat.link_rules: ARCH RELATIONS contents_of evidence expected found_words header_needs
pytest_cudalink.compat.releases: needs_for_nvvm_ir needs_for_ptx_isa ptx_isa_of
pytest_cudalink.emulator: Emulation emulation_for
pytest_cudalink.emulator.control: DriverControl Injected
pytest_cudalink.guardrails: CompatibilityCheckError CompatibilityGuardRails
  CompatibilityInsufficientMetadataError CompatibilityWarning DriverCtkCompatibilityError Routing
  declare_pipeline install installed process_wide_guard_rails uninstall
pytest_cudalink.guardrails.doctor: DoctorFinding DoctorReport PredictedLink examine
pytest_cudalink.guardrails.items: Fact Item Verdict
pytest_cudalink.guardrails.pipelines: Pipeline check_pipeline
pytest_cudalink.guardrails.provenance: Library
pytest_cudalink.guardrails.rules: KnownDriver check_driver check_pair judge judge_all
pytest_cudalink.guardrails.system: Copy System
pytest_cudalink.linker: CompileError Decision DriverNotFoundError LinkError Linker LinkerOptions ObjectCode
  Program ProgramOptions VersionSkewError choose_backend explain
pytest_cudalink.linker.dispatch: Case Policy Row cases driver_matters policies policy_named
pytest_cudalink.matrix: Cell CellsError load_cells select
pytest_cudalink.matrix.nox: sessions
pytest_cudalink.plugin.fixtures: BrokenRules Cudalink EmulatedDriver
pytest_cudalink.plugin.hookspecs: pytest_cudalink_decide pytest_cudalink_facts pytest_cudalink_library
  pytest_cudalink_link pytest_cudalink_targets pytest_cudalink_unsteered pytest_cudalink_unsupported
  pytest_cudalink_verdict pytest_cudalink_violation
pytest_cudalink.plugin.settings: Setting Settings
pytest_cudalink.probes: Fakes NvJitLink cache_clear device_arch driver_version fake fakes nvjitlink
  nvjitlink_version
pytest_cudalink.report.cell_run: CellRun Detail
pytest_cudalink.report.compare: Comparison OutcomeChange compare findings
pytest_cudalink.report.explain: Cause causes deciding_cell explain
pytest_cudalink.report.matrix_report: MatrixReport Partial
pytest_cudalink.report.merge: merge
pytest_cudalink.report.records: ArchRecord AskedRecord CauseRecord CollectedRecord CrashRecord
  DocumentedRecord EndRecord ExitRecord FindingRecord FoundRecord InputRecord LibraryRecord LinkRecord
  LinkVersionsRecord OperationRecord OriginRecord RecordError Recording RefusedRecord RunRecord SettingRecord
  StartRecord StickyRecord SubtestRecord TestRecord UnsteeredRecord VerdictRecord VersionRecord
  ViolationRecord Writer decode parse read schema tests_to_keep
pytest_cudalink.stubs: Description StubNotFoundError cmake_dir describe library_path
pytest_cudalink.targets: BackendChoice Choice ForcedBackendError LinkEvent LinkInput StaleRecipeError Target
  UnsteeredLink Watch watch
pytest_cudalink.toolchains: Toolchain ToolchainError add find installed library_path remove
pytest_cudalink.versions: CudaVersion Needs skew_remedy
pytest_cudalink.violations: Violation
"""


#: Imports the names of each line of its input, into a process that has imported nothing of the package.
IMPORTS = """
import sys
for line in sys.stdin:
    for name in [name for name in sys.modules if name.startswith("pytest_cudalink")]:
        del sys.modules[name]
    module, _, names = line.partition(": ")
    exec(f"import {module} as module\\nfrom {module} import {', '.join(names.split())}")
    assert module.__name__ == sys.modules[module.__name__].__name__
"""


@pytest.mark.slow  # a process imports every public module
def test_public_names_stay():
    """A program that imports a public name is not broken where what it names moves."""
    lines = PUBLIC.strip().replace("\n  ", " ")
    done = subprocess.run(
        [sys.executable, "-Werror", "-c", IMPORTS], input=lines, capture_output=True, text=True, check=False
    )
    assert (done.stderr, done.returncode) == ("", 0)


@pytest.mark.slow  # it compiles the package
def test_packages_without_their_sources(tmp_path):
    """Frozen programs have compiled modules alone, and their packages the same names."""
    copy = tmp_path / "pytest_cudalink"
    shutil.copytree(FOLDER, copy, ignore=shutil.ignore_patterns("lib", "generated", "native", "__pycache__"))
    assert compileall.compile_dir(copy, quiet=1, legacy=True)
    for source in copy.rglob("*.py"):
        source.unlink()
    program = f"""
import sys
from importlib import import_module
sys.path.insert(0, {str(tmp_path)!r})
for package in {PACKAGES!r}:
    module = import_module(package)
    assert module.__file__.startswith({str(tmp_path)!r})
    assert all(getattr(module, name) is not None for name in module.__all__)
"""
    subprocess.run([sys.executable, "-P", "-c", program], check=True)


@pytest.mark.parametrize(
    "names", ["violations: base.finding", "guardrails.doctor: doctor", "guardrails.system: doctor.system"]
)
def test_an_old_path_has_the_same_objects(names):
    old, new = (import_module(f"pytest_cudalink.{name}") for name in names.split(": "))
    public = [name for name in vars(new) if name[0].isupper()]
    assert public
    assert all(getattr(old, name) is getattr(new, name) for name in public)
    with pytest.raises(AttributeError):
        _ = old.no_such_name


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"^module 'pytest_cudalink\.audit' has no attribute 'audti'$"):
        _ = import_module("pytest_cudalink.audit").audti


#: Prints what the import of some modules has imported, what data it has read, and the libraries of CUDA in the process.
IMPORT = """
import importlib, sys
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
for name in sys.argv[1:]:
    importlib.import_module("pytest_cudalink." + name)
print(*[name for name, module in [*sys.modules.items()] if getattr(module, "__spec__", None)])
print(*[path.rpartition("/")[2] for path in opened if "/data/" in path or path.endswith(".toml")])
maps = open("/proc/self/maps").read()
print(*[name for name in ("libcuda", "nvJitLink", "nvrtc") if name in maps])
"""


@pytest.mark.parametrize(
    ("modules", "without", "reads"),
    [
        ("plugin linker artifacts probes cli linker.sample matrix.keys emulator", "cuda compat.atlas", "options.json"),
        ("compat.exports compat.releases compat.architectures", "json tomllib elftools packaging", ""),
        (
            "guardrails.can_link guardrails.provenance",
            "audit.wheel guardrails.guard linker._linker emulator stubs msgspec",
            "cuda_libraries.toml",
        ),
    ],
)
def test_what_an_import_does_not_do(modules, without, reads):
    """It loads no CUDA, and neither reads nor imports what only a use needs."""
    command = [sys.executable, *["-S"] * modules.startswith("compat"), "-c", IMPORT, *modules.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=FOLDER.parent)
    imported, read, mapped = done.stdout.split("\n")[:3]
    names = {name.removeprefix("pytest_cudalink.") for name in imported.split()}
    assert (names & {*without.split()}, read, mapped) == (set(), reads, "")
