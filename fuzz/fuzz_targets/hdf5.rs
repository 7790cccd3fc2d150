//! HDF5 through hdf5-reader: foreign code, so what matters is that its faults stay contained.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| twinscope_fuzz::open_and_read("fuzz.h5", data));
