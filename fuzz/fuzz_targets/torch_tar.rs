//! torch's tar container before 0.1.10.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| twinscope_fuzz::open_and_read("fuzz.bin", data));
