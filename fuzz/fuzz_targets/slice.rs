//! NumPy's slice syntax, as a user types it.
#![no_main]
use twinscope_tensor::{Bytes, DType, Shape, View, slice};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let shape = Shape::from([3, 1, 5]);
    if let Ok(cuts) = slice::parse(text, &shape) {
        let view = View::new(DType::U8, shape, Bytes::from(vec![0; 15]))
            .expect("fifteen bytes")
            .slice(&cuts);
        view.chunk(0, view.len() as usize, &mut Vec::new());
    }
});
