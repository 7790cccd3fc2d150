//! NumPy's slice syntax: `name[0, :, 5:9]`, negative indices and steps, `...`.

/// What is kept of one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// One index; the dimension disappears.
    Index(u64),
    /// `len` indices from `start`, `step` apart (which may be negative). Already checked to lie inside.
    Range { start: u64, step: i64, len: u64 },
}
