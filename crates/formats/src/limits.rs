//! How much a file may ask for. Every bound is here, with its reason.

/// Bounds on what reading may cost. None of them is reached by a file people really have.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// A header (safetensors JSON, npy dict, pickle) in bytes: the safetensors crate's own 100 MB bound, with room for
    /// pickles that carry NumPy arrays inline.
    pub header_bytes: u64,
    /// Opcodes one pickle may execute: a 100,000-tensor state dict needs about three million.
    pub pickle_ops: u64,
    /// Nodes a pickle's result may be walked through; shared nodes count each time they are met, which stops DAG bombs.
    pub walk_nodes: u64,
    /// Dimensions of one tensor. NumPy allows 64, torch any number; a thousand is a joke or an attack.
    pub rank: usize,
    /// What may be unpacked without asking how well it was packed.
    pub inflate_free: u64,
    /// Beyond that, how many times larger than its packed form data may become. Weights pack 1.2 : 1, zeros 1000 : 1.
    pub inflate_ratio: u64,
    /// Archives inside archives.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            header_bytes: 256 << 20,
            pickle_ops: 20_000_000,
            walk_nodes: 10_000_000,
            rank: 64,
            inflate_free: 64 << 20,
            inflate_ratio: 500,
            depth: 2,
        }
    }
}
