"""The record of a comparison with llama.cpp: verdicts, tables, the Markdown page."""

import statistics

import llama_cpp_build

OTHERS_CPU_SHARE_MAX = 0.1  # of the cores, taken by other work; a cell above it was not measured on a quiet machine


def verdict(result):
    """The peer's best option, the ratio of medians, the spread of paired ratios, and what they are worth."""
    best = max(result["theirs"], key=lambda option: statistics.median(result["theirs"][option]))
    pairs = [ours / theirs for ours, theirs in zip(result["ours"], result["theirs"][best], strict=True)]
    ratio = statistics.median(result["ours"]) / statistics.median(result["theirs"][best])
    grade = "aim" if ratio >= result["aim"] else "must" if ratio >= result["must"] else "no"
    return {"best": best, "ratio": ratio, "ratio_min": min(pairs), "ratio_max": max(pairs), "ok": grade}


def is_disturbed(result):
    return result["others_cpu_share"] > OTHERS_CPU_SHARE_MAX


def findings(summary):
    """What is wrong with the run, a sentence each: missed musts, disturbed cells."""
    sentences = []
    if summary["missed"]:
        sentences.append(f"Missed: {', '.join(summary['missed'])}.")
    if summary["disturbed"]:
        sentences.append(f"Other work took more than {OTHERS_CPU_SHARE_MAX:.0%} of the cores, no valid record: "
                         f"{', '.join(summary['disturbed'])}.")
    return sentences


def spread(samples):
    return f"{statistics.median(samples):,.1f} ({min(samples):,.1f}..{max(samples):,.1f})"


def table(results):
    rows = ["| cell | ours tokens/s | theirs, best option | ratio of medians | paired ratios | must / aim | ok? |",
            "|---" * 7 + "|"]
    for result in results:
        best = result["best"]
        grade = {"aim": "yes, aim", "must": "yes", "no": "**missed**"}[result["ok"]]
        if is_disturbed(result):
            grade += f", but other work took {result['others_cpu_share']:.0%}"
        rows.append(f"| {result['title']} | {spread(result['ours'])} | `{best}` {spread(result['theirs'][best])} "
                    f"| {result['ratio']:.2f} | {result['ratio_min']:.2f}..{result['ratio_max']:.2f} "
                    f"| {result['must']:g} / {result['aim']:g} | {grade} |")
    return "\n".join(rows)


def options_table(results):
    options = list(results[0]["theirs"])
    rows = ["| cell | " + " | ".join(f"`{option}`" for option in options) + " |", "|---" * (len(options) + 1) + "|"]
    for result in results:
        rows.append(f"| {result['title']} | " + " | ".join(map(spread, result["theirs"].values())) + " |")
    return "\n".join(rows)


def page(results, summary):
    """The Markdown page."""
    peer = summary["peer"]
    options = " ".join(f"-D{name}={value}" for name, value in peer["options"].items())
    return f"""# headwater and llama.cpp on a CPU: {summary['processor']}

`{summary['command']}` at commit {summary['commit']}, {summary['date']}. {summary['processor_name']}
({summary['processor']}: vendor, family, model), {summary['cores']} cores, {summary['threads']} threads on both sides,
target {summary['target']}, memory {summary['memory_bytes_per_s'] / 1e9:.1f} GB/s. Model `{summary['model']}`.
{summary['reps']} samples a cell, runs of both sides interleaved: median (min..max). Other work took at most
{summary['others_cpu_share']:.0%} of the cores while a cell ran.

{table(results)}

{" ".join(findings(summary)) or "No must is missed."}

What the columns compare:

- A sample is one program run. Decode counts the tokens of all sequences of a batch; ours includes choosing them,
  theirs does not.
- Shared prompts: theirs `-pps -kvu`, the prompt's KV held once (N_KV is checked); ours path `shared` with all sequences
  as members (checked), and 8 more prompt tokens of each sequence's own. Nothing shared: theirs `-pps`, one copy of the
  prompt's KV per sequence (N_KV is checked); ours path `flat` (checked).
- One chat with a short context: their `llama-bench` tg starts with an empty cache, ours behind 8 prompt tokens.
- KV cache: theirs f16 (its default), ours bf16.

## Every option of llama.cpp that was measured

{options_table(results)}

## The peer

llama-cpp-python {llama_cpp_build.VERSION} (PyPI sdist, its llama.cpp tree), {peer['version']}, flags `{peer['flags']}`,
options `{options}`.

AVX512-FP16 is left off: with it its flash attention falls to a scalar tail at head size 64 (35 against 108 tokens/s at
32 sequences). Built {"with" if peer['barrier'] else "without"} a compiler barrier before its
`{llama_cpp_build.TILE_LOAD}`: GCC 12.2 declares only 8 bytes of the tile configuration as read, drops the other stores,
and the first AMX load of a build without the barrier crashes.
"""
