"""Gets what the comparison of collectives needs into a directory of its own, without touching the system: Open MPI from
Debian's packages, unpacked, and PyTorch in a virtual environment, without the libraries for graphics cards.

What is there already (`mpirun` and `mpicc` on the path, a Python with torch) is taken as it is. What cannot be had is
`None`, and the reason is told.
"""

import glob
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# What torch needs to be imported, beside the libraries for cards.
TORCH_NEEDS = "filelock typing-extensions sympy mpmath networkx jinja2 MarkupSafe fsspec numpy".split()


class Missing(Exception):
    """Why something is skipped."""


@dataclass
class Mpi:
    launcher: list[str]
    program: Path
    version: str
    environment: dict[str, str] = field(default_factory=dict)


@dataclass
class Gloo:
    python: Path
    version: str


def run(command: list, what: str, **options) -> str:
    """Runs a command at low priority; its standard output."""
    nice = ["nice", "-n", "10"] if shutil.which("nice") else []
    words = [*nice, *map(str, command)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    except OSError as error:
        raise Missing(f"{what}: {error}") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines() or ["no reason was given"]
        raise Missing(f"{what}: {said[-1]}")
    return done.stdout


def lacuna_program() -> Path:
    """The release binary."""
    if "LACUNA" in os.environ:
        return Path(os.environ["LACUNA"])
    command = ["cargo", "build", "--quiet", "--release", "--locked", "-p", "lacuna-cli"]
    subprocess.run(command, cwd=ROOT, check=True)
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/lacuna"


def open_mpi(directory: Path) -> Mpi:
    """Open MPI and the benchmark, compiled with it."""
    program = directory / "all_reduce"
    source = HERE / "all_reduce.c"
    own = shutil.which("mpirun"), shutil.which("mpicc")
    if all(own):
        launcher, environment = own[0], {}
        version = run([launcher, "--version"], "mpirun --version").splitlines()[0]
        if not re.search("Open MPI|OpenRTE", version):
            raise Missing(f"{launcher} is not Open MPI's: {version}")
        run([own[1], "-O2", source, "-o", program], "mpicc")
    else:
        root = unpack_open_mpi(directory / "openmpi")
        triple = run(["gcc", "-print-multiarch"], "gcc").strip()
        library = root / "usr/lib" / triple
        paths = [library, library / "openmpi/lib", root / "lib" / triple]
        environment = {
            "LD_LIBRARY_PATH": ":".join(map(str, paths)),
            "OPAL_PREFIX": str(root / "usr"),
            "PMIX_INSTALL_PREFIX": str(root / "usr"),
            "OMPI_MCA_mca_base_component_path": str(library / "openmpi/lib/openmpi3"),
            "PMIX_MCA_mca_base_component_path": str(library / "pmix2/lib/pmix"),
        }
        launcher = root / "usr/bin/mpirun.openmpi"
        include = library / "openmpi/include"
        flags = [f"-I{include}", f"-L{library / 'openmpi/lib'}", f"-L{library}", f"-Wl,-rpath-link,{library}"]
        run(["gcc", "-O2", source, "-o", program, *flags, "-lmpi"], "gcc")
        version = run([launcher, "--version"], "mpirun --version", env=os.environ | environment).splitlines()[0]
    # Ranks share cores where there are fewer of them; they then give way rather than spin, as Open MPI does by itself
    # when it is told that it is oversubscribed.
    words = [str(launcher), "--oversubscribe", "--bind-to", "none"]
    words += "--mca btl tcp,self --mca pml ob1 --mca btl_tcp_if_include lo".split()
    if os.geteuid() == 0:
        words.append("--allow-run-as-root")
    return Mpi(words, program, re.sub(r"^\S+ \((Open MPI|OpenRTE)\)", "Open MPI", version), environment)


def unpack_open_mpi(root: Path) -> Path:
    """Debian's packages of Open MPI and of what it needs, unpacked."""
    if (root / "complete").exists():
        return root
    for tool in ("apt-get", "dpkg-deb", "gcc"):
        if not shutil.which(tool):
            raise Missing(f"there is neither mpirun with mpicc nor {tool}: install Open MPI")
    told = run(["apt-get", "install", "-s", "--no-install-recommends", "openmpi-bin"], "apt-get")
    packages = re.findall(r"^Inst (\S+)", told, re.MULTILINE)
    packages = packages if "openmpi-bin" in packages else [*packages, "openmpi-bin", "libopenmpi3"]
    shutil.rmtree(root, ignore_errors=True)
    downloads = root / "packages"
    downloads.mkdir(parents=True)
    run(["apt-get", "download", "-qq", *packages, "libopenmpi-dev"], "apt-get download", cwd=downloads)
    for package in sorted(downloads.glob("*.deb")):
        run(["dpkg-deb", "-x", package, root], "dpkg-deb")
    shutil.rmtree(downloads)
    (root / "complete").touch()
    return root


def gloo(directory: Path) -> Gloo:
    """A Python with torch."""
    environment = directory / "torch"
    for python in (Path(sys.executable), environment / "bin/python"):
        if python.exists() and (version := torch_version(python)):
            return Gloo(python, version)
    shutil.rmtree(environment, ignore_errors=True)
    run([sys.executable, "-m", "venv", environment], "venv")
    python = environment / "bin/python"
    # As large as everything else together are the libraries for cards, which nothing here uses.
    run([python, "-m", "pip", "install", "-q", "--no-deps", "torch", *TORCH_NEEDS], "pip install torch")
    if not torch_version(python):
        stand_in_for_card_libraries(environment)
    version = torch_version(python)
    if not version:
        raise Missing("torch is installed, and cannot be imported: install one by yourself and run this with its Python")
    return Gloo(python, version)


def torch_version(python: Path) -> str | None:
    code = "import torch, torch.distributed as d; assert d.is_gloo_available(); print(torch.__version__)"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def stand_in_for_card_libraries(environment: Path) -> None:
    """Libraries with the names and symbols that torch wants of those for cards. Nothing here calls a function of theirs;
    each returns 100, of CUDA "there is no device". Only symbols that torch refers to are there, under the versions that
    it asks for."""
    folder = Path(glob.glob(f"{environment}/lib/python3*/site-packages/torch/lib")[0])
    wanted: dict[str, set[str]] = {}
    unversioned: set[str] = set()
    symbols: dict[str, set[str]] = {}
    for user in folder.glob("*.so*"):
        dynamic = run(["readelf", "-Wd", user], "readelf")
        for needed in re.findall(r"\(NEEDED\).*\[(\S+)\]", dynamic):
            if is_for_cards(needed) and not (folder / needed).exists():
                wanted.setdefault(needed, set())
        for line in run(["readelf", "-W", "--dyn-syms", user], "readelf").splitlines():
            words = line.split()
            if len(words) < 8 or words[6] != "UND":
                continue
            name, _, version = words[7].partition("@")
            if version.strip("@"):
                symbols.setdefault(version.strip("@"), set()).add(name)
            else:
                unversioned.add(name)
    for library, names in wanted.items():
        stem = re.sub(r"^lib|(_host)?\.so.*$", "", library)
        versions = {version for version in symbols if version == library or version.lower() == stem}
        for version in versions:
            names |= symbols[version]
        names |= {name for name in unversioned if name.lower().startswith(stem.lower())}
        source = "".join(f"int {name}(void) {{ return 100; }}\n" for name in sorted(names))
        script = folder / f".{library}.map"
        script.write_text("".join(f"{version} {{ global: *; }};\n" for version in versions))
        command = ["gcc", "-shared", "-fPIC", "-w", "-fno-builtin", "-x", "c", "-", f"-Wl,-soname,{library}"]
        command += ["-o", folder / library]
        run(command + [f"-Wl,--version-script={script}"] * bool(versions), "gcc", input=source)
        script.unlink()


def is_for_cards(library: str) -> bool:
    return re.match(r"lib(cu|nccl|nvrtc|nvshmem|nvToolsExt|nvJitLink)", library) is not None
