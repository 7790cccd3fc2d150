"""Writes crates/tensor/src/blocks/grids.rs: the codebooks of the IQ types, from the data in the gguf package.

    python testdata/gguf/make_grids.py > crates/tensor/src/blocks/grids.rs

The grids are facts of the file format (ggml-common.h). Each point is written as its coordinates' level numbers packed into
an integer, lowest bits first; the levels beside it turn them into values.
"""
import numpy as np
from gguf import quants

GRIDS = [("IQ2XXS", quants.IQ2_XXS), ("IQ2XS", quants.IQ2_XS), ("IQ2S", quants.IQ2_S), ("IQ3XXS", quants.IQ3_XXS),
         ("IQ3S", quants.IQ3_S), ("IQ1S", quants.IQ1_S)]

print("//! The codebooks of the IQ types. Written by testdata/gguf/make_grids.py; do not edit.")
print("//!")
print("//! A point is its coordinates' level numbers in `BITS` bits each, lowest first.")
print("""
const fn expand<const POINTS: usize, const SIZE: usize, const LEVELS: usize>(
    bits: u32,
    levels: &[i8; LEVELS],
    points: &[u16; POINTS],
) -> [[i8; SIZE]; POINTS] {
    let mut grid = [[0; SIZE]; POINTS];
    let mut i = 0;
    while i < POINTS {
        let mut j = 0;
        while j < SIZE {
            grid[i][j] = levels[(points[i] >> (bits * j as u32)) as usize & ((1 << bits) - 1)];
            j += 1;
        }
        i += 1;
    }
    grid
}""")
for name, kind in GRIDS:
    kind.init_grid()
    points, size = kind.grid_shape
    levels = [int(x) for x in kind.grid_map]
    bits = 2 if len(levels) <= 4 else 3
    grid = kind.grid.reshape(points, size).astype(np.int64)
    codes = [sum(levels.index(int(x)) << (bits * i) for i, x in enumerate(row)) for row in grid]
    print(f"\npub(super) static {name}: [[i8; {size}]; {points}] = expand({bits}, &{levels}, &[")
    for i in range(0, points, 16):
        print("    " + ", ".join(f"{c:#x}" for c in codes[i:i + 16]) + ",")
    print("]);")
