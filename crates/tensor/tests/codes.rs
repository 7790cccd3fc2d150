//! The stored codes of a view, and slices of views that hold nothing.

use twinscope_tensor::{BlockType, Bytes, DType, Quant, Shape, View, slice};

#[test]
fn codes_of_quantized_elements_are_their_integers() {
    let view = View::new(DType::QI8, Shape::from([3]), Bytes::from(vec![0xff, 0, 5])).unwrap();
    let view = view.quantized(Quant::Tensor {
        scale: 0.5,
        zero_point: 1.0,
    });
    let codes = view.codes().unwrap();
    assert_eq!((codes.dtype(), codes.quant()), (DType::I8, None));
    assert_eq!(codes.contiguous(), Some(&[0xff, 0, 5][..]));
}

#[test]
fn codes_of_blocks_are_their_bytes() {
    let block = BlockType::Q4_0;
    let bytes: Vec<u8> = (0..6 * block.bytes() as u8).collect();
    let view = View::new(
        DType::Block(block),
        Shape::from([3, 64]),
        Bytes::from(bytes.clone()),
    )
    .unwrap();
    let codes = view.codes().unwrap();
    assert_eq!(
        (codes.dtype(), codes.shape()),
        (DType::U8, &Shape::from([3, 2, 18]))
    );
    assert_eq!(codes.contiguous(), Some(&bytes[..]));
    // A column of blocks is not a row of bytes.
    assert!(
        view.slice(&slice::parse("[:, 0]", view.shape()).unwrap())
            .codes()
            .is_none()
    );
}

#[test]
fn codes_of_floats_are_their_bits_and_wide_elements_have_none() {
    let bits = |dtype, bytes: Vec<u8>| {
        View::new(dtype, Shape::scalar(), Bytes::from(bytes))
            .unwrap()
            .codes()
            .map(|view| view.dtype())
    };
    assert_eq!(bits(DType::F8E4M3Fn, vec![0]), Some(DType::U8));
    assert_eq!(bits(DType::Bf16, vec![0; 2]), Some(DType::U16));
    assert_eq!(bits(DType::F64, vec![0; 8]), Some(DType::U64));
    assert_eq!(bits(DType::C64, vec![0; 8]), None);
    assert_eq!(bits(DType::F80, vec![0; 16]), None);
}

#[test]
fn a_slice_of_an_empty_view_with_huge_dimensions_is_empty() {
    let view = View::new(
        DType::F32,
        Shape::from([9, 1 << 62, 1 << 62, 0]),
        Bytes::from(vec![]),
    )
    .unwrap();
    let part = view.slice(&slice::parse("[-1, 5::3, ::-2]", view.shape()).unwrap());
    assert!(part.is_empty());
    assert_eq!(part.contiguous(), Some(&[][..]));
}
