//! Archives: their directories, read in place.

pub(crate) mod zip_directory;
