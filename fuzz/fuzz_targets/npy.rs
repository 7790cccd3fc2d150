//! The Python literal in front of an array.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| twinscope_fuzz::open_and_read("fuzz.npy", data));
