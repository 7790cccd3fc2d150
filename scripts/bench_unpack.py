#!/usr/bin/env python3
"""`twinscope ls x.tar.gz` against `gzip -dc x.tar.gz > FILE`: both unpack the whole archive. bench_unpack.py BINARY"""
import pathlib, random, struct, subprocess, sys, tarfile, tempfile, time

binary = sys.argv[1]
with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    rng = random.Random(1)
    with tarfile.open(folder / "run.tar.gz", "w:gz", compresslevel=1) as archive:
        for i in range(16):
            count = 4 << 20
            data = rng.randbytes(count * 4)
            # Weights hardly pack; small integers and zeros do. Half of each.
            if i % 2:
                data = data.translate(bytes(b & 7 for b in range(256)))
            header = repr({"descr": "<f4", "fortran_order": False, "shape": (count,)}).encode()
            header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
            member = folder / f"{i}_query.npy"
            member.write_bytes(b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + data)
            archive.add(member, f"run/{member.name}")
            member.unlink()

    def best(command, output):
        times = []
        for _ in range(3):
            with open(output, "wb") as out:
                start = time.perf_counter()
                subprocess.run(command, stdout=out, stderr=subprocess.DEVNULL, check=True)
                times.append(time.perf_counter() - start)
        return min(times)

    theirs = best(["gzip", "-dc", folder / "run.tar.gz"], folder / "out.tar")
    size = (folder / "out.tar").stat().st_size
    ours = best([binary, "ls", folder / "run.tar.gz", "--cache-dir", folder / "cache"], "/dev/null")
    print(f"tar.gz of {size >> 20} MiB: gzip -dc {theirs:.2f} s, twinscope ls {ours:.2f} s, ratio {ours / theirs:.2f}")
