"""llama.cpp as a peer on the CPU: fetched from its PyPI sdist, built for the processor at hand.

The processor's instructions are switched on one by one, and none by -march=native: a hypervisor may mask the model
number, and GCC then guesses another processor. AVX512-FP16 stays off: with it, llama.cpp's flash attention falls to a
scalar tail at head size 64 (35 against 108 tokens/s at 32 sequences).
"""

import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tarfile

VERSION = "0.3.36"
SDIST = f"llama_cpp_python-{VERSION}.tar.gz"
SDIST_SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
PROGRAMS = ("llama-bench", "llama-batched-bench")

FIXED_OPTIONS = {
    "CMAKE_BUILD_TYPE": "Release", "BUILD_SHARED_LIBS": "OFF", "GGML_NATIVE": "OFF", "LLAMA_CURL": "OFF",
    "LLAMA_OPENSSL": "OFF", "LLAMA_BUILD_TESTS": "OFF", "LLAMA_BUILD_EXAMPLES": "OFF", "LLAMA_BUILD_SERVER": "ON",
    "LLAMA_BUILD_MTMD": "ON"}
# Option of ggml -> flags of /proc/cpuinfo that must all be there.
FEATURES = {
    "GGML_AVX": "avx", "GGML_AVX2": "avx2", "GGML_FMA": "fma", "GGML_F16C": "f16c", "GGML_BMI2": "bmi2",
    "GGML_AVX512": "avx512f avx512cd avx512vl avx512dq avx512bw", "GGML_AVX512_VBMI": "avx512vbmi",
    "GGML_AVX512_VNNI": "avx512_vnni", "GGML_AVX512_BF16": "avx512_bf16",
    "GGML_AMX_TILE": "amx_tile", "GGML_AMX_INT8": "amx_int8", "GGML_AMX_BF16": "amx_bf16"}

# GCC 12.2's _tile_loadconfig declares 8 of the configuration's 64 bytes as read, so -O3 drops the stores of rows and
# column bytes, and the first tile load faults.
TILE_SOURCE = "ggml/src/ggml-cpu/amx/mmq.cpp"
TILE_LOAD = "_tile_loadconfig(&tc);"
TILE_BARRIER = 'asm volatile("" : : "r"(&tc) : "memory");'


class BuildError(Exception):
    """The peer could not be fetched or built; the message says what to do."""


def processor(text):
    """Vendor, family, model, name, flags and core count from the text of /proc/cpuinfo."""
    fields = dict(re.findall(r"^([\w ]+?)\s*: (.*)$", text.split("\n\n")[0], re.MULTILINE))
    vendor = fields["vendor_id"].removeprefix("Genuine").removeprefix("Authentic").lower()
    return {"vendor": vendor, "family": int(fields["cpu family"]), "model": int(fields["model"]),
            "name": fields["model name"].strip(), "flags": frozenset(fields["flags"].split()),
            "cores": len(re.findall(r"^processor\s*:", text, re.MULTILINE))}


def options_for(flags):
    """CMake options of the peer on a processor with these flags."""
    features = {name: "ON" if set(needed.split()) <= flags else "OFF" for name, needed in FEATURES.items()}
    return FIXED_OPTIONS | features


def with_barrier(source):
    """The text of TILE_SOURCE with the barrier before its tile configuration is loaded; unchanged if it is there."""
    if TILE_BARRIER in source:
        return source
    if source.count(TILE_LOAD) != 1:
        raise BuildError(f"{TILE_SOURCE} calls '{TILE_LOAD}' {source.count(TILE_LOAD)} times, 1 expected in {VERSION}")
    return source.replace(TILE_LOAD, f"{TILE_BARRIER}\n    {TILE_LOAD}")


def run(command):
    print("+ " + " ".join(map(str, command)), file=sys.stderr, flush=True)
    try:
        subprocess.run(command, check=True, stdout=sys.stderr)
    except (OSError, subprocess.CalledProcessError) as failure:
        raise BuildError(str(failure)) from failure


def fetch(folder):
    """The unpacked llama.cpp tree under `folder`, with the barrier in place."""
    archive, tree = folder / SDIST, folder / SDIST.removesuffix(".tar.gz") / "vendor" / "llama.cpp"
    if not archive.exists():
        folder.mkdir(parents=True, exist_ok=True)
        run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
             "--no-binary", ":all:", "--dest", folder, f"llama-cpp-python=={VERSION}"])
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    if digest != SDIST_SHA256:
        raise BuildError(f"{archive} has sha256 {digest}, expected {SDIST_SHA256}; delete it and try again")
    with tarfile.open(archive) as sdist:
        sdist.extractall(folder)  # its digest is known
    (tree / TILE_SOURCE).write_text(with_barrier((tree / TILE_SOURCE).read_text()))
    return tree


def configure(folder, flags):
    """Fetches and configures under `folder`; returns the build folder."""
    tree = fetch(folder)
    done = folder / "llama.cpp"
    options = [f"-D{name}={value}" for name, value in options_for(flags).items()]
    run(["cmake", "-S", tree, "-B", done, "-G", "Ninja", *options])
    return done


def build(folder, flags, programs=PROGRAMS):
    """Builds under `folder` what is not built yet; returns the build folder."""
    done = folder / "llama.cpp"
    if not all((done / "bin" / program).exists() for program in programs):
        run(["cmake", "--build", configure(folder, flags), "--parallel", str(os.cpu_count()), "--target", *programs])
    return done


def describe(folder, program=PROGRAMS[0]):
    """Version, compiler, options and flags of a build folder."""
    cache = (folder / "CMakeCache.txt").read_text()
    values = dict(re.findall(r"^(\w+):\w+=(.*)$", cache, re.MULTILINE))
    try:
        version = subprocess.run([folder / "bin" / program, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as failure:
        raise BuildError(str(failure)) from failure
    source = pathlib.Path(values["CMAKE_HOME_DIRECTORY"]) / TILE_SOURCE
    return {"version": " ".join((version.stdout + version.stderr).split()),
            "options": {name: values[name] for name in FIXED_OPTIONS | FEATURES if name in values},
            "flags": f"{values.get('CMAKE_CXX_FLAGS', '')} {values.get('CMAKE_CXX_FLAGS_RELEASE', '')}".strip(),
            "barrier": source.exists() and TILE_BARRIER in source.read_text()}
