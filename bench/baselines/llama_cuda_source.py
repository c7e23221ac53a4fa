"""llama.cpp's CUDA back end as a peer: its source cut down to two programs and the kernels that the cells reach.

A whole build compiles template instances for every head size and coding, which takes a small machine hours. Those that
no cell reaches are replaced by ones that abort with their name; all others are compiled from unmodified source. An
instance is an explicit instantiation in a file of ggml-cuda/template-instances.
"""

import dataclasses
import pathlib
import re
import shutil
import tarfile

import llama_cpp_build
from llama_cpp_build import BuildError

PROGRAMS = llama_cpp_build.PROGRAMS
ARCHIVE = "llama-cuda.tar.gz"
PROGRAM_FOLDER = pathlib.Path("llama-cuda-build/bin")
KEPT = ("CMakeLists.txt", "LICENSE", "cmake", "common", "include", "src", "vendor", "ggml/CMakeLists.txt", "ggml/cmake",
        "ggml/include", "ggml/src/*.*", "ggml/src/ggml-cpu", "ggml/src/ggml-cuda", "tools/batched-bench",
        "tools/llama-bench")
TOOLS = """find_package(Threads REQUIRED)
llama_add_compile_flags()
add_subdirectory(batched-bench)
add_subdirectory(llama-bench)
"""
INSTANCES = "ggml/src/ggml-cuda/template-instances"
OPTIONS = {
    "CMAKE_BUILD_TYPE": "Release", "BUILD_SHARED_LIBS": "OFF", "GGML_NATIVE": "OFF", "GGML_CUDA": "ON",
    "CMAKE_CUDA_ARCHITECTURES": "90", "GGML_CUDA_FA": "ON", "GGML_CUDA_FA_QUANTS": "f16-f16", "GGML_CUDA_NCCL": "OFF",
    "LLAMA_OPENSSL": "OFF", "LLAMA_BUILD_TESTS": "OFF", "LLAMA_BUILD_EXAMPLES": "OFF", "LLAMA_BUILD_SERVER": "OFF",
    "LLAMA_BUILD_APP": "OFF", "LLAMA_BUILD_MTMD": "OFF"}


@dataclasses.dataclass(frozen=True)
class Family:
    """Instances of one function template: files <name>*.cu with lines like DECL_X(arguments);"""
    name: str
    header: str
    function: str
    reached: re.Pattern  # of an instance's arguments


FAMILIES = (
    # Head sizes 64 and 128, values as wide as keys; 1 or 4 query heads of a key head grouped.
    Family("fattn-mma", "fattn-mma-f16.cuh", "ggml_cuda_flash_attn_ext_mma_f16_case",
           re.compile(r"(64|128), \1, \d+, [14]")),
    Family("fattn-tile", "fattn-tile.cuh", "ggml_cuda_flash_attn_ext_tile_case", re.compile("(?!)")),
    Family("mmq", "mmq.cuh", "mul_mat_q_case", re.compile("GGML_TYPE_Q8_0")),
    Family("mmf", "mmf.cuh", "mul_mat_f_cuda", re.compile("1|2|4|8|16")))
DECLARATION = re.compile(r"DECL_\w+\(([^)]*)\);\n")


def stand_ins(family, header, declarations):
    """The text of a source file with an aborting instance for each of these declarations.

    The header's own template steps aside under another name, so that its macros instantiate the one below it.
    """
    head = re.search(rf"template <[^>]*>\s*void {family.function}\([^{{}}]*\)(?= {{)", header)
    if not head:
        raise BuildError(f"{family.header} has no template {family.function}; {llama_cpp_build.VERSION} had one")
    return "\n".join([
        '#pragma GCC diagnostic ignored "-Wunused-parameter"', f"#define {family.function} {family.function}_left_out",
        f'#include "../{family.header}"', f"#undef {family.function}", "", f"{head[0]} {{",
        '    GGML_ABORT("%s: left out of this build", __PRETTY_FUNCTION__);', "}", "", *declarations, ""])


def trim(family, folder):
    """Moves a family's instances in `folder` (INSTANCES of a tree) that are not reached into one file of stand-ins."""
    left_out = []
    for path in sorted(folder.glob(f"{family.name}*.cu")):
        text = path.read_text()
        reached = [found[0] for found in DECLARATION.finditer(text) if family.reached.fullmatch(found[1])]
        left_out += [found[0].strip() for found in DECLARATION.finditer(text) if found[0] not in reached]
        path.unlink()
        if reached:
            path.write_text(text[:text.index("DECL_")] + "".join(reached))
    if not left_out:
        raise BuildError(f"{folder} has no instance to leave out in {family.name}*.cu; {llama_cpp_build.VERSION} had "
                         "some")
    header = (folder.parent / family.header).read_text()
    (folder / f"{family.name}-left-out.cu").write_text(stand_ins(family, header, left_out))


def prepare(folder):
    """Fetches llama.cpp under `folder`, trims a copy of it and packs that; returns the archive's path."""
    tree, trimmed, archive = llama_cpp_build.fetch(folder), folder / "llama-cuda", folder / ARCHIVE
    shutil.rmtree(trimmed, ignore_errors=True)
    for pattern in KEPT:
        for source in tree.glob(pattern):
            target = trimmed / source.relative_to(tree)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    (trimmed / "tools/CMakeLists.txt").write_text(TOOLS)
    for family in FAMILIES:
        trim(family, trimmed / INSTANCES)
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(trimmed, trimmed.name)
    return archive


def build(archive, folder, jobs):
    """Builds the programs of an archive of prepare() under `folder`; returns the folder they are in."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder)  # our own
    done = folder / PROGRAM_FOLDER.parent
    options = [f"-D{name}={value}" for name, value in OPTIONS.items()]
    llama_cpp_build.run(["cmake", "-S", folder / "llama-cuda", "-B", done, "-G", "Ninja", *options])
    llama_cpp_build.run(["cmake", "--build", done, "--parallel", str(jobs), "--target", *PROGRAMS])
    return folder / PROGRAM_FOLDER
