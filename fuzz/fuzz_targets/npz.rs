//! A zip of arrays.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| twinscope_fuzz::open_and_read("fuzz.npz", data));
