#!/usr/bin/env python3
"""`twinscope diff` from start to finished report, as ratios in one run: bench_diff.py BINARY [GIB]

GIB is the size of each side of the large pair (default 1). Baselines: reading the same bytes once with `cat` (the page cache's
speed as a process sees it), a PyTorch script that computes the same totals in chunks (when torch can be imported), and for packed
archives `twinscope ls`, which only inflates. Where the kernels stand compared to an AVX2 sum is printed by `cargo bench -p twinscope-measure
--bench totals`. Needs numpy; with torch the packed files are .pth, else .npy.
"""
import io, json, pathlib, struct, subprocess, sys, tempfile, time, zipfile
import numpy as np

try:
    import torch
except ImportError:
    torch = None

binary, gib = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
HERE = pathlib.Path(__file__).parent


def safetensors(path, tensors):
    """tensors: name -> (dtype name, shape, chunks of bytes)"""
    header, at = {}, 0
    for name, (dtype, shape, chunks) in tensors.items():
        length = sum(len(chunk) for chunk in chunks)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + length]}
        at += length
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, chunks in tensors.values():
            for chunk in chunks:
                file.write(chunk)


def seconds(command, rounds=3, ok=(0,)):
    """Best of some rounds, and the peak of anonymous memory in MiB."""
    best, peak = float("inf"), 0
    for _ in range(rounds):
        start = time.perf_counter()
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while child.poll() is None:
            try:
                status = open(f"/proc/{child.pid}/status").read()
                peak = max(peak, *(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon:")), 0)
            except (FileNotFoundError, ProcessLookupError, TypeError):
                pass
            time.sleep(0.002)
        best = min(best, time.perf_counter() - start)
        assert child.returncode in ok, (command, child.returncode)
    return best, peak / 1024


def row(name, ours, peak, **against):
    ratios = "  ".join(f"{label} {ours / other:.2f}x" for label, other in against.items())
    print(f"{name:<76} {ours:8.3f} s  RssAnon {peak:6.1f} MiB  {ratios}", flush=True)


def large(folder, dtype, sizes):
    """A pair with rounding-like differences, of several sizes: cost must grow linearly."""
    rng = np.random.default_rng(1)
    block = rng.standard_normal(1 << 22, dtype=np.float32)
    other = block * (1 + rng.standard_normal(block.size, dtype=np.float32) * np.float32(1e-7))
    if dtype == "I32":
        block = rng.integers(-1000, 1000, block.size, dtype=np.int32)
        other = block + (rng.random(block.size) < 0.01).astype(np.int32)
    if dtype == "BF16":
        block, other = ((x.view(np.uint32) >> 16).astype(np.uint16) for x in (block, block * np.float32(1.002)))
    times = []
    for size in sizes:
        count = max(1, int(size * 2**30) // block.nbytes)
        for side, data in (("a", block), ("b", other)):
            safetensors(folder / f"{side}.safetensors", {"0_query": (dtype, [count * 1024, block.size // 1024], [data.tobytes()] * count)})
        pair = [folder / "a.safetensors", folder / "b.safetensors"]
        cat, _ = seconds(["cat", *pair])
        ours, peak = seconds([binary, "diff", *pair, "--json"], ok=(0, 1))
        against = {"cat": cat}
        if size == gib:
            if torch:
                theirs = seconds([sys.executable, HERE / "torch_totals.py", *pair], rounds=1)[0]
                print(f"    {theirs / ours:.0f} times as fast as a PyTorch script for the same totals (goal 50)")
            else:
                print("torch is not installed: the comparison with a PyTorch script is LEFT OUT")
        row(f"2 x {size:g} GiB {dtype} (goal RssAnon under 300)", ours, peak, **against)
        times.append(ours / size)
    if len(times) > 1:
        print(f"    seconds per GiB of a side at {sizes} GiB: {[round(t, 3) for t in times]} (goal: the same, cost is linear)")


def main():
    # Beside the binary: what holds it has room for the files, up to four times GIB.
    with tempfile.TemporaryDirectory(dir=pathlib.Path(binary).parent) as folder:
        folder = pathlib.Path(folder)
        large(folder, "F32", [gib / 4, gib / 2, gib, gib * 2])
        large(folder, "BF16", [gib])
        large(folder, "I32", [gib / 4])

        rng = np.random.default_rng(2)
        tiny = {f"{i // 50}_stage_{i % 50}": ("F32", [16], [rng.standard_normal(16, dtype=np.float32).tobytes()]) for i in range(10_000)}
        for side in "ab":
            safetensors(folder / f"{side}.safetensors", tiny)
        opening, _ = seconds([binary, "ls", folder / "a.safetensors", "--json"])
        ours, peak = seconds([binary, "diff", folder / "a.safetensors", folder / "b.safetensors"])
        row("10,000 tiny pairs", ours, peak, opening_both=2 * opening)
        print(f"    beyond opening: {(ours - 2 * opening) / 10_000 * 1e6:.1f} microseconds a pair (goal 20)")
        noisy = {name: (dtype, shape, [(np.frombuffer(part, np.float32) * np.float32(1 + 2**-22)).tobytes() for part in parts]) for name, (dtype, shape, parts) in tiny.items()}
        safetensors(folder / "b.safetensors", noisy)
        ours, peak = seconds([binary, "diff", folder / "a.safetensors", folder / "b.safetensors", "--no-causes"])
        row("the same, all of them rounding, without causes", ours, peak, opening_both=2 * opening)
        ours, peak = seconds([binary, "diff", folder / "a.safetensors", folder / "b.safetensors"])
        row("the same with causes: what made each of them is looked for", ours, peak, opening_both=2 * opening)

        some = {f"t{i}": ("F32", [512, 512], [rng.standard_normal(1 << 18, dtype=np.float32).tobytes()]) for i in range(300)}
        safetensors(folder / "a.safetensors", some)
        ours, peak = seconds([binary, "diff", folder / "a.safetensors"], ok=(0, 1, 2))
        row("one source alone, 300 tensors of 1 MiB (goal under 2 s)", ours, peak)

        for side in "ab":
            with zipfile.ZipFile(folder / f"{side}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
                for i in range(156):
                    array, file = np.round(rng.standard_normal((500, 500), dtype=np.float32) * 64) / 64, io.BytesIO()
                    torch.save(torch.from_numpy(array), file) if torch else np.save(file, array)
                    archive.writestr(f"run/{i // 13}_stage{i % 13}.{'pth' if torch else 'npy'}", file.getvalue())
        inflating = sum(seconds([binary, "ls", folder / f"{side}.zip"])[0] for side in "ab")
        ours, peak = seconds([binary, "diff", folder / "a.zip", folder / "b.zip"], ok=(1,))
        row("two deflated zips of 156 files, 149 MB each (goal 1.3x, RssAnon under 150)", ours, peak, inflating=inflating)

        for side in "ab":
            (folder / side).mkdir()
            for i in range(5_000):
                np.save(folder / side / f"{i // 13}_stage{i % 13}.npy", np.full(16, i, np.float32))
        ours, peak = seconds([binary, "diff", folder / "a", folder / "b"])
        row("5,000 tiny files a side (goal under 0.5 s)", ours, peak)


main()
